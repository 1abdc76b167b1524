"""Transactions of a client of a scripted cluster."""

from __future__ import annotations

from typing import Any

from ZODB.Connection import TransactionMetaData

from neo.client import NEOStorage
from neo.net.channel import Channel
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64
from neo.protocol.packets import AskStoreObject, Message
from tests.unit.client.scripted import Scripted

OID, OTHER = p64(1), p64(2)
TTID = p64(1001)


def begin(storage: NEOStorage, **metadata: Any) -> TransactionMetaData:
    transaction = TransactionMetaData(**metadata)
    storage.tpc_begin(transaction)
    return transaction


def storing(
    storage: NEOStorage,
    oid: bytes = OID,
    data: bytes = b"one",
    base: bytes | None = None,
    **metadata: Any,
) -> TransactionMetaData:
    """Begin a transaction that stores an object."""
    transaction = begin(storage, **metadata)
    storage.store(oid, base, data, "", transaction)
    return transaction


def finish(storage: NEOStorage, transaction: TransactionMetaData) -> bytes:
    """Vote and finish. Return the tid."""
    storage.tpc_vote(transaction)
    tid = storage.tpc_finish(transaction)
    assert tid is not None
    return tid


def settle(storage: NEOStorage, transaction: TransactionMetaData) -> None:
    """Wait until all that a transaction asked is answered."""
    storage._begun(transaction).settle()


def dialed(storage: NEOStorage, nid: int) -> Channel:
    """Return the connection to a storage node, which is made if there is none."""
    return storage._session.storages.channel(nid)


def stored(cluster: Scripted, nid: int) -> list[tuple[bytes, bytes, bytes]]:
    return [(m.oid, m.serial, m.data) for m in cluster.storages[nid].asked(AskStoreObject)]


def refusing(code: ErrorCode) -> Any:
    def refuse(m: Message) -> Message:
        raise ErrorAnswer(code)

    return refuse


class Merging:
    """Stands for conflict resolution: joins the new data and the committed serial."""

    def __init__(self, storage: NEOStorage) -> None:
        self.calls: list[tuple[bytes, ...]] = []
        storage.tryToResolveConflict = self

    def __call__(
        self, oid: bytes, committed: bytes, old: bytes, new: bytes, committed_data: bytes = b""
    ) -> bytes:
        self.calls.append((oid, committed, old, new, committed_data))
        return new + b"+" + committed[-1:]
