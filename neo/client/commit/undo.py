"""IStorageUndoable.undo: make earlier revisions current again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ZODB.POSException import ConflictError, UndoError

from neo.client.commit.participants import Kind
from neo.client.commit.transaction import ClientTransaction
from neo.client.errors import refused
from neo.client.history.transactions import transaction_information
from neo.client.read.replicas import Replicas
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import add64
from neo.protocol.packets import AskObject, AskObjectUndoSerial

Merge = Callable[[bytes, bytes, bytes, bytes, bytes], bytes]
"""tryToResolveConflict(oid, committed serial, old serial, new data, committed data)."""
LoadSerial = Callable[[bytes, bytes], bytes]


class _Storage(Protocol):
    def loadSerial(self, oid: bytes, serial: bytes) -> bytes: ...

    def tryToResolveConflict(
        self, oid: bytes, committed: bytes, old: bytes, new: bytes, committed_data: bytes
    ) -> bytes: ...


def undo(
    replicas: Replicas, storage: _Storage, transaction: ClientTransaction, undone: bytes
) -> list[bytes]:
    """Add the undo of a transaction to ``transaction``; it may undo several. Return its oids.

    Raise UndoError if a later transaction changed the same object and conflict resolution cannot
    merge the two, or if a revision was packed away.
    """
    if undone > replicas.last_tid:
        replicas.barrier()  # another client knows of it
    (information,) = transaction_information(replicas, [undone])
    if information is None:
        raise UndoError(f"transaction {undone.hex()} does not exist")
    if information.packed:
        raise UndoError(f"transaction {undone.hex()} was packed")
    # Earlier undos of the same transaction count, so the storage nodes must have stored them.
    transaction.settle()
    oids = []
    for oid, found in _undo_serials(replicas, transaction, undone, information.oid_list).items():
        try:
            _undo_object(storage, transaction, undone, oid, *found)
        except _NoData as e:
            raise UndoError(_why_no_data(replicas, oid, e.serial), oid) from None
        oids.append(oid)
    return oids


def _undo_serials(
    replicas: Replicas, transaction: ClientTransaction, undone: bytes, oids: list[bytes]
) -> dict[bytes, tuple[bytes, bytes | None, bool]]:
    """Return oid → (current serial, serial to go back to or None, whether ``undone`` is current)."""
    view = replicas.view()
    by_partition: dict[int, list[bytes]] = {}
    for oid in oids:
        by_partition.setdefault(view.partition(oid), []).append(oid)
    before = add64(replicas.last_tid, 1)
    answers = replicas.read_many(
        [
            (its_oids[0], AskObjectUndoSerial(transaction.ttid, before, undone, its_oids))
            for its_oids in by_partition.values()
        ]
    )
    found: dict[bytes, tuple[bytes, bytes | None, bool]] = {}
    for answer in answers:
        if isinstance(answer, ErrorAnswer):
            if answer.code is ErrorCode.OID_NOT_FOUND:
                raise UndoError(f"transaction {undone.hex()}: earlier data was packed away")
            raise refused(f"undo of transaction {undone.hex()}", answer)
        found.update(answer.undo_dict)
    return found


def _undo_object(
    storage: _Storage,
    transaction: ClientTransaction,
    undone: bytes,
    oid: bytes,
    current: bytes,
    back_to: bytes | None,
    is_current: bool,
) -> None:
    if is_current:
        if back_to is None:
            transaction.delete(oid, current)
        else:
            transaction.copy(oid, current, back_to)
        return
    if back_to is None:
        raise UndoError("the object was changed after its creation", oid)
    try:
        data = storage.tryToResolveConflict(
            oid,
            current,
            undone,
            _load(storage, oid, back_to),
            _current_data(storage, transaction, oid, current),
        )
    except ConflictError:
        raise UndoError("a later transaction changed the object", oid) from None
    transaction.store(oid, current, data, Kind.MERGED)


class _NoData(Exception):
    """A revision that the merge of an undo needs has no data."""

    def __init__(self, serial: bytes) -> None:
        super().__init__(serial)
        self.serial = serial


def _load(storage: _Storage, oid: bytes, serial: bytes) -> bytes:
    try:
        return storage.loadSerial(oid, serial)
    except KeyError:
        raise _NoData(serial) from None


def _why_no_data(replicas: Replicas, oid: bytes, serial: bytes) -> str:
    """Return why a revision has no data: it is a deletion, or it is gone."""
    try:
        deleted = replicas.read(oid, AskObject(oid, serial, None)).compression is None
    except ErrorAnswer:
        deleted = False
    if deleted:
        return f"transaction {serial.hex()} deleted the object or undid its creation: nothing to merge"
    return f"the data of transaction {serial.hex()} was packed away"


def _current_data(
    storage: _Storage, transaction: ClientTransaction, oid: bytes, current: bytes
) -> bytes:
    """Return the object's data as this transaction sees it."""
    change = transaction.changes.get(oid)
    if change is None or change.kind is Kind.CHECK:
        return _load(storage, oid, current)
    if change.data_serial is not None:
        return _load(storage, oid, change.data_serial)
    if change.data is None:
        raise UndoError("the object is deleted or not in memory any more", oid)
    return change.data
