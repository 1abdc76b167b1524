"""List the transactions of any storage, and let go of what that took (files, connections)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ZODB.Connection import TransactionMetaData

from neo.protocol.ids import ZERO_TID


def transactions(
    storage: Any, start: bytes | None = None, stop: bytes | None = None
) -> Generator[Any, None, None]:
    """In the order of tids, both bounds included. Close it when it is left early.

    The records of a transaction can be listed until the next one is asked for.
    """
    iterator = storage.iterator(start, stop)
    try:
        yield from iterator
    finally:
        # Iterators of FileStorage hold a file open; ZODB's interface knows no close.
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def metadata(transaction: Any) -> TransactionMetaData:
    """User, description and extension, as all storages take them. Some give the extension as bytes, and
    others (MappingStorage) as a dictionary only."""
    extension = getattr(transaction, "extension_bytes", None)
    if extension is None:
        extension = transaction.extension
    return TransactionMetaData(transaction.user, transaction.description, extension)


def last_tid(storage: Any) -> bytes:
    """ZERO_TID for an empty storage, whatever it says itself."""
    tid: bytes = storage.lastTransaction() or ZERO_TID
    return tid
