"""What clients ask of a storage node to commit (specification, *Commit* to *Deadlock avoidance*)."""

from __future__ import annotations

import logging
from hashlib import sha1
from typing import TYPE_CHECKING

from neo.net.fault_sites import FaultSite
from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_HASH
from neo.protocol.packets import (
    AbortTransaction,
    AnswerCheckCurrentSerial,
    AnswerLockHolders,
    AnswerRebaseObject,
    AnswerRebaseTransaction,
    AnswerStoreObject,
    AnswerStoreTransaction,
    AnswerVoteTransaction,
    AskCheckCurrentSerial,
    AskLockHolders,
    AskRebaseObject,
    AskRebaseTransaction,
    AskStoreObject,
    AskStoreTransaction,
    AskVoteTransaction,
    HolderRow,
    Message,
)
from neo.storage.backend.api import BackendRefused, Stored, TransactionMeta
from neo.storage.commit.transactions import (
    CellMode,
    Client,
    RebaseConflict,
    TransactionRefused,
    Unverifiable,
)
from neo.storage.serving.handler import StorageHandler

if TYPE_CHECKING:
    from neo.storage.node import StorageNode


logger = logging.getLogger("neo.storage")


class ServeCommit(StorageHandler):
    """The part of a client's handler that writes. ``client``: what its transactions belong to."""

    def __init__(self, core: StorageNode, client: Client) -> None:
        super().__init__(core)
        self.client = client

    # -- first phase -------------------------------------------------------------------------------

    @on(AskStoreObject)
    def store(self, peer: Peer, message_id: int, m: AskStoreObject) -> None:
        self._check_writable()
        stored = None  # in an absent cell, it is as if nothing were stored
        if self.core.cell_mode(m.oid) is not CellMode.ABSENT:
            stored = self._write(peer, m)
        try:
            self.core.locks.store(
                m.ttid,
                self.client,
                m.oid,
                m.serial,
                stored,
                lambda locked: peer.answer(message_id, AnswerStoreObject(locked)),
            )
        except TransactionRefused:
            if stored is not None and stored.data_id is not None:
                self.core.backend.release_data((stored.data_id,))
            raise

    def _check_writable(self) -> None:
        if self.core.backup.active:
            raise ErrorAnswer(ErrorCode.READ_ONLY_ACCESS, "this is a backup cluster")

    def _write(self, peer: Peer, m: AskStoreObject) -> Stored:
        """Write the data, which takes effect only if it is voted."""
        if m.data_serial is not None:
            return self._undo(m, m.data_serial)
        if m.checksum == ZERO_HASH and not m.data:
            return Stored(m.oid, None, None)
        if m.compression not in (0, 1):
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"compression {m.compression} is unknown: 0 or 1 expected"
            )
        if sha1(m.data).digest() != m.checksum:
            text = (
                f"the data of object {m.oid.hex()} does not match its checksum: it was damaged on"
                " its way and is not stored"
            )
            logger.error("%r: %s", peer, text)
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, text)
        data_id = self.core.backend.store_data(m.oid, m.compression, m.checksum, m.data)
        return Stored(m.oid, data_id, None)

    def _undo(self, m: AskStoreObject, data_serial: bytes) -> Stored:
        value = self.core.backend.value_at(m.oid, data_serial)
        if value is not None:
            return Stored(m.oid, value[0], data_serial)
        if self.core.cell_mode(m.oid) is CellMode.LOCKLESS:
            # The record is still to be replicated: the row tells where the value will be.
            return Stored(m.oid, None, data_serial)
        raise ErrorAnswer(
            ErrorCode.OID_NOT_FOUND,
            f"object {m.oid.hex()} has no revision {data_serial.hex()} whose data could come back",
        )

    @on(AskCheckCurrentSerial)
    def check(self, peer: Peer, message_id: int, m: AskCheckCurrentSerial) -> None:
        self._check_writable()
        self.core.locks.store(
            m.ttid,
            self.client,
            m.oid,
            m.serial,
            None,
            lambda locked: peer.answer(message_id, AnswerCheckCurrentSerial(locked)),
        )

    @on(AskRebaseTransaction)
    def rebase(self, peer: Peer, message_id: int, m: AskRebaseTransaction) -> Message:
        oids = self.core.locks.rebase(m.ttid, self.client, m.locking_tid)
        return AnswerRebaseTransaction(oids)

    @on(AskRebaseObject)
    def rebase_object(self, peer: Peer, message_id: int, m: AskRebaseObject) -> None:
        def answer(conflict: RebaseConflict | Unverifiable | None) -> None:
            if isinstance(conflict, Unverifiable):
                peer.refuse(message_id, ErrorCode.INCOMPLETE_TRANSACTION, str(conflict))
                return
            if conflict is None:
                peer.answer(message_id, AnswerRebaseObject(None))
                return
            serial, conflict_serial, stored = conflict
            data = None  # the client knows what it checked or wanted to undo
            if stored is not None and stored.data_id is not None and stored.value_serial is None:
                data = self.core.backend.load_data(stored.data_id)
            peer.answer(message_id, AnswerRebaseObject((serial, conflict_serial, data)))

        self.core.locks.rebase_object(m.ttid, self.client, m.oid, answer)

    @on(AbortTransaction)
    def abort(self, peer: Peer, message_id: int, m: AbortTransaction) -> None:
        if self.core.locks.abort(m.ttid, self.client):
            self.core.backend.abort(m.ttid)

    @on(AskLockHolders)
    def lock_holders(self, peer: Peer, message_id: int, m: AskLockHolders) -> Message:
        locks = self.core.locks
        blocked = locks.blocked(m.ttid, m.oid)
        if blocked is None:
            return AnswerLockHolders(None, [])
        holders: list[HolderRow] = [
            (t.ttid, t.client.nid, self.core.client_address(t.client.nid), locks.age(t), t.phase)
            for t in blocked.holders
        ]
        return AnswerLockHolders(blocked.waited, holders)

    # -- votes -------------------------------------------------------------------------------------

    @on(AskStoreTransaction)
    def vote_with_metadata(self, peer: Peer, message_id: int, m: AskStoreTransaction) -> None:
        if self._dropped(peer):
            return
        meta = TransactionMeta(m.user, m.description, m.extension, m.oid_list)
        self._vote(m.ttid, meta)
        self._answer_voted(peer, message_id, m.ttid, AnswerStoreTransaction())

    @on(AskVoteTransaction)
    def vote(self, peer: Peer, message_id: int, m: AskVoteTransaction) -> None:
        if self._dropped(peer):
            return
        self._vote(m.ttid, None)
        self._answer_voted(peer, message_id, m.ttid, AnswerVoteTransaction())

    def _answer_voted(self, peer: Peer, message_id: int, ttid: bytes, answer: Message) -> None:
        locks = self.core.locks
        self.core.answer_stored(peer, message_id, answer, lambda: locks.vote_stored(ttid))

    def _dropped(self, peer: Peer) -> bool:
        """Only at a fault site."""
        if not self.core.shell.fault(FaultSite.CLIENT_DROPPED_BEFORE_VOTE):
            return False
        peer.close()
        self.lost(peer, "disconnected on purpose")
        return True

    def _vote(self, ttid: bytes, meta: TransactionMeta | None) -> None:
        stored = self.core.locks.vote(ttid, self.client, metadata=meta is not None)
        try:
            self.core.backend.vote(ttid, meta, stored)
        except BackendRefused:
            # Nothing was written, so that the backend will not release the data with the rows.
            self.core.locks.abort(ttid, self.client)
            self.core.backend.release_data(
                change.data_id for change in stored if change.data_id is not None
            )
            raise
