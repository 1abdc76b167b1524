"""List the transactions of any storage, and release its files and connections."""

from __future__ import annotations

import struct
from collections.abc import Generator
from contextlib import closing
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage.format import CorruptedError

from neo.client import NEOStorage
from neo.client.history.transactions import tids_ascending
from neo.migrate.errors import MigrateError
from neo.migrate.records import Damage
from neo.protocol.ids import ZERO_TID

#: Errors that iterators of FileStorage raise for damaged data; a length may be petabytes.
DAMAGED = (Damage, CorruptedError, ValueError, OverflowError, MemoryError, struct.error)


def transactions(
    storage: Any, start: bytes | None = None, stop: bytes | None = None
) -> Generator[Any, None, None]:
    """Yield transactions in the order of tids, both bounds included. Close it when it is left early.

    The records of a transaction can be listed until the next one is requested.
    """
    iterator = storage.iterator(start, stop)
    try:
        yield from iterator
    finally:
        # Iterators of FileStorage hold a file open, but ZODB's interface has no close.
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def whole(
    storage: Any, start: bytes | None = None, stop: bytes | None = None
) -> Generator[Any, None, None]:
    """Yield as transactions() does; raise MigrateError if the storage ends before its last transaction.

    ``stop``: a transaction of the storage; None: the last one when the iteration begins.
    """
    end = last_tid(storage) if stop is None else stop
    read = ZERO_TID
    with closing(transactions(storage, start, stop)) as found:
        try:
            for transaction in found:
                if transaction.tid <= read:
                    raise _incomplete(
                        storage, read, f"its next transaction, 0x{transaction.tid.hex()}, is not later"
                    )
                read = transaction.tid
                yield transaction
        except DAMAGED as e:
            raise _incomplete(storage, read, _words(e)) from None
    if read < end and (start or ZERO_TID) <= end:
        raise _incomplete(
            storage, read, f"it lists no more, although its last transaction is 0x{end.hex()}"
        )


def records(transaction: Any) -> Generator[Any, None, None]:
    """Yield the records of a transaction. Raise MigrateError if they cannot be read."""
    try:
        yield from transaction
    except DAMAGED as e:
        name = f"transaction 0x{transaction.tid.hex()}"
        if isinstance(e, Damage):
            raise MigrateError(
                f"{name} cannot be read: {e}; restore the file from a backup, or copy what can be read "
                "with neomigrate --salvage"
            ) from None
        raise MigrateError(f"{name} cannot be read: {_words(e)}") from None


def _words(error: Exception) -> str:
    return "a length in it is impossible" if isinstance(error, MemoryError) else str(error)


def tids(storage: Any, stop: bytes) -> Generator[tuple[bytes, bool], None, None]:
    """Yield (tid, whether a pack passed it) of all transactions up to ``stop``, which the storage has.

    Read no data if the storage can list tids alone. Raise MigrateError as whole() does.
    """
    if isinstance(storage, NEOStorage):
        # A pack of NEO removes revisions, but no transaction.
        for tid in tids_ascending(storage.replicas, ZERO_TID, stop):
            yield tid, False
        return
    with closing(whole(storage, None, stop)) as found:
        for transaction in found:
            yield transaction.tid, transaction.status == "p"


def _incomplete(storage: Any, read: bytes, why: str) -> MigrateError:
    where = f"transaction 0x{read.hex()}" if read != ZERO_TID else "the beginning"
    return MigrateError(
        f"{storage_name(storage)} cannot be read after {where}: {why}; it is damaged, or was packed or "
        "truncated meanwhile"
    )


def storage_name(storage: Any) -> str:
    """Return the name of a storage for messages."""
    return f"storage {storage.getName()!r}"


def metadata(transaction: Any) -> TransactionMetaData:
    """Return user, description and extension in the form that all storages accept.

    Some storages give the extension as bytes, others (MappingStorage) only as a dictionary.
    """
    extension = getattr(transaction, "extension_bytes", None)
    if extension is None:
        extension = transaction.extension
    return TransactionMetaData(transaction.user, transaction.description, extension)


def last_tid(storage: Any) -> bytes:
    """Return the last tid; ZERO_TID for an empty storage, whatever it returns itself."""
    tid: bytes = storage.lastTransaction() or ZERO_TID
    return tid
