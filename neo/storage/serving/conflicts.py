"""Answers to stores and checks, and the revision with which a store conflicts (specification 8.31, 8.32).
"""

from __future__ import annotations

from typing import Protocol

from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import MAX_TID, ZERO_TID
from neo.protocol.packets import (
    AnswerCheckCurrentSerial,
    AnswerStoreObject,
    AskCheckCurrentSerial,
    AskRebaseObject,
    AskStoreObject,
    Message,
    NotifyConflictData,
)
from neo.storage.backend.api import Record, RecordDamaged, Stored
from neo.storage.commit.locks import Locks
from neo.storage.commit.transactions import Hopeless

#: A larger revision is not sent before it is asked for: the class of the object may resolve no conflicts.
DATA_MAX = 64 << 10


class Reads(Protocol):
    """The reads of the backend."""

    def load(self, oid: bytes, at: bytes | None, before: bytes | None) -> Record | None: ...


class Values(Protocol):
    """The data of transactions in progress."""

    def load_data(self, data_id: int) -> tuple[int, bytes, bytes]: ...


class LockedStores(Protocol):
    """The locks of the node."""

    def locked_store(self, oid: bytes, tid: bytes) -> Stored | None: ...


class Revisions:
    """The revisions with which stores conflict: those that are committed, and those of locked
    transactions, which will be."""

    def __init__(self, reads: Reads, values: Values, locks: LockedStores) -> None:
        self._reads = reads
        self._values = values
        self._locks = locks

    def load(self, oid: bytes, at: bytes | None, before: bytes | None) -> Record | None:
        stored = None if at is None else self._locks.locked_store(oid, at)
        if stored is None or at is None:
            return self._reads.load(oid, at, before)
        if stored.data_id is None:
            return None
        return Record(at, None, *self._values.load_data(stored.data_id), stored.value_serial)


def answer_locked(
    peer: Peer,
    message_id: int,
    kind: type[AnswerStoreObject] | type[AnswerCheckCurrentSerial],
    locked: bytes | Hopeless | None,
) -> None:
    """Answer a store or a check, perhaps after a wait for the lock."""
    if isinstance(locked, Hopeless):
        peer.refuse(message_id, ErrorCode.INCOMPLETE_TRANSACTION, str(locked))
    else:
        peer.answer(message_id, kind(locked))


def answer_with_data(
    peer: Peer, message_id: int, m: AskStoreObject, reads: Reads, locked: bytes | Hopeless | None
) -> None:
    """Answer a store. If it conflicts, send the other revision first, so that the client need not load it
    to resolve the conflict, while others wait for the object."""
    if isinstance(locked, bytes) and locked not in (ZERO_TID, MAX_TID) and not peer.closed:
        _send_revision(peer, m, reads, locked)
    answer_locked(peer, message_id, AnswerStoreObject, locked)


def _send_revision(peer: Peer, m: AskStoreObject, reads: Reads, serial: bytes) -> None:
    try:
        record = reads.load(m.oid, serial, None)
    except RecordDamaged:
        return  # the client hears of it when it loads the revision
    if record is not None and record.compression is not None and len(record.data) <= DATA_MAX:
        stored = record.compression, record.checksum, record.data
        peer.send(NotifyConflictData(m.ttid, m.oid, serial, *stored))


def lock_holders(locks: Locks, message: Message) -> str | None:
    """Return, for a trace, the transactions that hold the object for which a request waits, separated by
    spaces; none if it waits to be rebased. None if it does not wait for a lock."""
    if not isinstance(message, AskStoreObject | AskCheckCurrentSerial | AskRebaseObject):
        return None
    blocked = locks.blocked(message.ttid, message.oid)
    return None if blocked is None else " ".join(each.ttid.hex() for each in blocked.holders)
