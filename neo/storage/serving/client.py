"""What clients ask of a storage node: reads and undo (specification, *Read*); see also ``commit``."""

from __future__ import annotations

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.handler import Method, on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import INVALID_PARTITION
from neo.protocol.packets import (
    AnswerFinalTID,
    AnswerObject,
    AnswerObjectHistory,
    AnswerObjectUndoSerial,
    AnswerOIDs,
    AnswerTIDs,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AskFinalTID,
    AskObject,
    AskObjectHistory,
    AskObjectUndoSerial,
    AskOIDs,
    AskSize,
    AskTIDs,
    AskTIDsFrom,
    AskTransactionInformation,
    Message,
)
from neo.storage.commit.requests import ServeCommit
from neo.storage.serving.handler import Read

#: Longest lists of ids in one answer. Clients ask for hundreds or thousands at a time.
LENGTH_MAX = 1_000_000
#: No database has so many revisions; it is what a 64-bit database can count.
RANGE_MAX = 2**62


class ServeClient(ServeCommit):
    """The handler of an identified client. Reads see whole transactions: they wait for those that
    are locked, since the client may have been told of them already (FACTS 7.2)."""

    def method(self, message: type[Message]) -> Method | None:
        self.core.pace.asked()
        return super().method(message)

    def lost(self, peer: Peer, reason: str) -> None:
        self.core.clients.pop(peer, None)
        self.core.guard(lambda: self.core.locks.connection_lost(self.client))()

    # -- helpers -----------------------------------------------------------------------------------

    def _check_readable(self, id_: bytes) -> None:
        state = self.core.cell_state(id_)
        if state is None or not state.readable:
            raise ErrorAnswer(ErrorCode.NON_READABLE_CELL)

    def _check_partition(self, partition: int) -> None:
        partitions = self.core.partitions
        if not 0 <= partition < len(partitions):
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"there are {len(partitions)} partitions, not {partition}"
            )
        state = partitions.state(partition, self.core.nid)
        if state is None or not state.readable:
            raise ErrorAnswer(ErrorCode.NON_READABLE_CELL)

    @staticmethod
    def _check_range(first: int, last: int) -> None:
        if not 0 <= first < last <= RANGE_MAX:
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, f"invalid range: [{first}, {last})")

    def _scan(self, peer: Peer, message_id: int, read: Read) -> None:
        """Read something that any transaction may change."""
        self.core.locks.when_unlocked(self.answer_with(peer, message_id, read))

    # -- objects -----------------------------------------------------------------------------------

    @on(AskObject)
    def object(self, peer: Peer, message_id: int, m: AskObject) -> None:
        read = self.answer_with(peer, message_id, lambda: self._load(m))
        if self.core.shell.fault(FaultSite.READ_LATE):
            late = self.core.guard(lambda: self.core.locks.when_readable(m.oid, read))
            self.core.call_later(LATE_SECONDS, late)
        else:
            self.core.locks.when_readable(m.oid, read)

    def _load(self, m: AskObject) -> Message:
        self._check_readable(m.oid)
        backend = self.core.backend
        record = backend.load(m.oid, m.at, m.before)
        if record is None:
            exists = backend.object_exists(m.oid)
            raise ErrorAnswer(
                ErrorCode.OID_NOT_FOUND if exists else ErrorCode.OID_DOES_NOT_EXIST, m.oid.hex()
            )
        return AnswerObject(m.oid, *record)

    @on(AskObjectHistory)
    def history(self, peer: Peer, message_id: int, m: AskObjectHistory) -> None:
        self._check_range(m.first, m.last)

        def read() -> Message:
            self._check_readable(m.oid)
            # What a pack leaves of older revisions can be read, but is no part of the history: a node
            # of another implementation lists it neither.
            since = self.core.packer.horizon()
            history = self.core.backend.history(m.oid, m.first, m.last, since)
            if not history:
                raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, m.oid.hex())
            return AnswerObjectHistory(m.oid, history)

        self._scan(peer, message_id, read)

    @on(AskObjectUndoSerial)
    def undo_serials(self, peer: Peer, message_id: int, m: AskObjectUndoSerial) -> None:
        def read() -> Message:
            core = self.core
            serials = {}
            for oid in m.oid_list:
                self._check_readable(oid)
                pending = core.locks.stored(m.ttid, oid)
                try:
                    serial = core.backend.undo_serial(oid, m.max_tid, m.undone_tid, pending)
                except KeyError:
                    raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, oid.hex()) from None
                if serial is not None:
                    serials[oid] = serial
            return AnswerObjectUndoSerial(serials)

        self._scan(peer, message_id, read)

    @on(AskOIDs)
    def oids(self, peer: Peer, message_id: int, m: AskOIDs) -> None:
        self._check_range(0, m.length)

        def read() -> Message:
            self._check_partition(m.partition)
            length = min(m.length, LENGTH_MAX)
            return AnswerOIDs(self.core.backend.oids(m.partition, m.min_oid, length))

        self._scan(peer, message_id, read)

    @on(AskSize)
    def size(self, peer: Peer, message_id: int, m: AskSize) -> Message:
        return self.core.sizes.measure()

    # -- transactions ------------------------------------------------------------------------------

    @on(AskTransactionInformation)
    def transaction(self, peer: Peer, message_id: int, m: AskTransactionInformation) -> None:
        def read() -> Message:
            self._check_readable(m.tid)
            found = self.core.backend.transaction(m.tid)
            if found is None:
                raise ErrorAnswer(ErrorCode.TID_NOT_FOUND, m.tid.hex())
            return AnswerTransactionInformation(
                found.tid, found.user, found.description, found.extension, found.packed, found.oids
            )

        self._scan(peer, message_id, read)

    @on(AskTIDs)
    def tids(self, peer: Peer, message_id: int, m: AskTIDs) -> None:
        self._check_range(m.first, m.last)
        last = min(m.last, m.first + LENGTH_MAX)

        def read() -> Message:
            if m.partition == INVALID_PARTITION:
                partitions = self.core.readable_partitions()
            else:
                self._check_partition(m.partition)
                partitions = [m.partition]
            return AnswerTIDs(self.core.backend.tids_descending(m.first, last, partitions))

        self._scan(peer, message_id, read)

    @on(AskTIDsFrom)
    def tids_from(self, peer: Peer, message_id: int, m: AskTIDsFrom) -> None:
        self._check_range(0, m.length)

        def read() -> Message:
            self._check_partition(m.partition)
            length = min(m.length, LENGTH_MAX)
            return AnswerTIDsFrom(
                self.core.backend.tids_ascending(m.min_tid, m.max_tid, length, m.partition)
            )

        self._scan(peer, message_id, read)

    @on(AskFinalTID)
    def final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> None:
        def read() -> None:
            # A node that has not all of the partition cannot say that nothing was committed.
            self._check_readable(m.ttid)
            answer = AnswerFinalTID(self.core.backend.final_tid(m.ttid))
            # That the vote was dropped, too: else another node that has locked it, and was away, could
            # still have it committed after a crash of this one.
            self.core.answer_stored(peer, message_id, answer)

        self._scan(peer, message_id, read)
