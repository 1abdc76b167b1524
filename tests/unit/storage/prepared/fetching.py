"""A node that fetches prepared transactions."""

from __future__ import annotations

from hashlib import sha1

from neo.protocol.ids import ZERO_HASH, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AddPrepared,
    AddPreparedObject,
    AnswerFetchPrepared,
    AnswerJoinPrepared,
    AskFetchPrepared,
    AskJoinPrepared,
    AskLocks,
    DecidedRow,
    NotifyFeatures,
    NotifyPrepared,
    NotifyReady,
    NotifyReplicationDone,
    PreparedMetadata,
    StartOperation,
)
from tests.unit.storage.replicas import Destination, answer, reply, take_question
from tests.unit.storage.world import End, MakeWorld, World

XID, TEXT, SINCE = b"order 7", b"jim: pays", 1000.0
META: PreparedMetadata = (b"user", b"note", b"ext", [p64(0), p64(2)])
DECIDED: DecidedRow = (b"order 6", p64(4), None, 990.0)


def restart(make_world: MakeWorld, *kept: int, backup: bool = False) -> tuple[World, End]:
    """Another process on the same database; the master lets these transactions stay."""
    world = make_world()
    master = world.join()
    master.send(NotifyFeatures([FEATURE_OURS]))
    world.send_table(master)
    master.send(NotifyPrepared([p64(ttid) for ttid in kept]))
    master.send(StartOperation(backup))
    assert master.take(NotifyReady) == NotifyReady()
    return world, master


class Prepared(Destination):
    """S1 waits for transaction 10, which is prepared, and has fetched what is committed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.unfinished(12, 10)
        self.master.send(NotifyPrepared([p64(10)]))
        self.end = self.source(FEATURE_OURS)
        self.serve(self.end, 0, 12, {(12, 0): b"committed"})
        self.begin()

    def begin(self, *ttids: int) -> None:
        """The node asks for prepared transactions."""
        self.message_id, m = take_question(self.end, AskFetchPrepared)
        assert (m.partition, m.ttid_list) == (0, [p64(ttid) for ttid in ttids or (10,)])

    def begin_without_any(self) -> None:
        """The node asks for the outcomes only."""
        m = reply(self.end, AskFetchPrepared, AnswerFetchPrepared([], []))
        assert m.ttid_list == []

    def mark(self, ttid: int = 10, *checks: tuple[int, int], meta: bool = True) -> None:
        checked = [(p64(oid), p64(serial)) for oid, serial in checks]
        metadata = META if meta else None
        row = AddPrepared(p64(ttid), XID, SINCE, TEXT, [0, 1], metadata, checked)
        self.end.send(row, self.message_id)

    def row(self, ttid: int, oid: int, data: bytes | None, serial: int | None = None) -> None:
        checksum = ZERO_HASH if data is None else sha1(data).digest()
        source = None if serial is None else p64(serial)
        row = AddPreparedObject(p64(ttid), p64(oid), 0, checksum, data or b"", source)
        self.end.send(row, self.message_id)

    def send_one(self, oid: int) -> None:
        """The source sends transaction 10, of which it has one object."""
        self.mark()
        self.row(10, oid, b"prepared")
        self.end_rows()

    def end_rows(self, *ttids: int) -> None:
        sent = [p64(ttid) for ttid in ttids or (10,)]
        answer(self.end, self.message_id, AnswerFetchPrepared(sent, [DECIDED]))

    def join(self, *joined: int, asked: int = 10) -> None:
        """The node asks the master whether it takes part."""
        m = reply(self.master, AskJoinPrepared, AnswerJoinPrepared([p64(ttid) for ttid in joined]))
        assert (m.partition, m.ttid_list) == (0, [p64(asked)])

    def done(self, tid: int) -> None:
        assert self.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(tid))

    def phases(self) -> dict[bytes, str]:
        return {ttid: phase for ttid, _, phase, _, _ in self.master.ask(AskLocks()).row_list}
