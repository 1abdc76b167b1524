"""What plays the other storage node of a replication."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import TypeVar

from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import ZERO_HASH, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AcceptIdentification,
    AddObject,
    AddTransaction,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AnswerPackState,
    AnswerUnfinishedTransactions,
    AskFetchObjects,
    AskFetchTransactions,
    AskPackState,
    AskUnfinishedTransactions,
    CellRow,
    Message,
    NodeRow,
    NotifyFeatures,
    NotifyReady,
    RequestIdentification,
    StartOperation,
)
from tests.unit.storage.requests import finish, store, vote
from tests.unit.storage.world import OUT, STORAGE, UP, End, World

M = TypeVar("M", bound=Message)
OTHER = ("127.0.0.1", 2002)
MAX = p64(2**62)


def storage_row(nid: int, state: NodeState = NodeState.RUNNING) -> NodeRow:
    return (NodeType.STORAGE, OTHER, nid, state, 20.0 + nid)


def storage(world: World, master: End, nid: int, *features: str) -> End:
    """Another storage node dials this one."""
    world.notify(master, storage_row(nid))
    end = world.stranger()
    answer = identify(end, nid, *features)
    assert answer == AcceptIdentification(NodeType.STORAGE, 1, nid), answer
    return end


def identify(end: End, nid: int, *features: str) -> object:
    extra = {FEATURES: [*features]} if features else {}
    answer: object = end.ask(
        RequestIdentification(NodeType.STORAGE, nid, OTHER, "test", 20.0 + nid, extra)
    )
    return answer


def take_question(end: End, kind: type[M]) -> tuple[int, M]:
    """The next message, with its id. A source that a test does not pack says so by itself."""
    while True:
        end.world.wait(lambda: bool(end.inbox), f"no {kind.__name__}")
        message_id, message = end.inbox.pop(0)
        if kind is AskPackState or not isinstance(message, AskPackState):
            break
        assert message_id is not None
        end.answer(message_id, AnswerPackState(ZERO_TID))
    assert isinstance(message, kind), message
    assert message_id is not None
    return message_id, message


def answer(end: End, message_id: int, message: Message) -> None:
    end.answer(message_id, message)


def reply(end: End, kind: type[M], message: Message) -> M:
    """Answer the next message, which must be of this kind. Return it."""
    message_id, question = take_question(end, kind)
    end.answer(message_id, message)
    return question


def full(world: World, master: End) -> None:
    """Two transactions of partition 0 with objects in both."""
    client = world.client(master)
    for ttid, tid, oids in ((10, 12, (0, 1, 2)), (14, 16, (2, 4))):
        for oid in oids:
            assert store(client, ttid, oid, 12 if (ttid, oid) == (14, 2) else 0) is None
        vote(client, ttid, *oids)
        finish(master, ttid, tid)


class Destination:
    """S1 whose cell of partition 0 is out of date, unless ``rows`` of the partition table say otherwise;
    S2 has all data and is played by the test."""

    def __init__(
        self, world: World, ptid: int = 1, rows: list[list[CellRow]] | None = None
    ) -> None:
        self.world = world
        self.master = world.join()
        world.notify(self.master, storage_row(2))
        world.send_table(self.master, rows or [[(1, OUT), (2, UP)], [(1, UP)]], ptid)
        self.master.send(StartOperation(False))
        self.master.take(NotifyReady)

    def unfinished(self, max_tid: int, *ttids: int, partitions: Sequence[int] = (0,)) -> None:
        m = reply(
            self.master,
            AskUnfinishedTransactions,
            AnswerUnfinishedTransactions(p64(max_tid), [p64(ttid) for ttid in ttids]),
        )
        assert m.offset_list == list(partitions)

    def source(self, *features: str) -> End:
        """S2 is dialed and accepts."""
        self.world.wait(lambda: bool(self.world.host.dialed), "the source is not dialed")
        source = self.world.take_dial()
        extra = {FEATURES: [FEATURE_OURS, *self.world.blobs]}
        request = reply(source, RequestIdentification, AcceptIdentification(NodeType.STORAGE, 2, 1))
        assert request == RequestIdentification(NodeType.STORAGE, 1, STORAGE, "test", 1.5, extra)
        if features:
            source.send(NotifyFeatures(list(features)))
        return source

    @staticmethod
    def serve(
        source: End,
        first: int,
        last: int,
        revisions: dict[tuple[int, int], bytes | None],
        partition: int = 0,
    ) -> None:
        """Play the source in a round: {(tid, oid): data}, a transaction for each tid."""
        Destination.serve_from(source, first, first, last, revisions, partition)

    @staticmethod
    def serve_from(
        source: End,
        first_transaction: int,
        first: int,
        last: int,
        revisions: dict[tuple[int, int], bytes | None],
        partition: int = 0,
    ) -> None:
        """A round whose transactions do not begin where its revisions do."""
        message_id, m = take_question(source, AskFetchTransactions)
        assert (m.partition, m.min_tid, m.max_tid) == (partition, p64(first_transaction), p64(last))
        for tid in sorted({tid for tid, _ in revisions}):
            row = AddTransaction(p64(tid), b"u", b"d", b"", False, p64(tid), [])
            source.connection.send(row, message_id)
        answer(source, message_id, AnswerFetchTransactions(None, None, []))
        message_id, o = take_question(source, AskFetchObjects)
        assert (o.partition, o.min_tid, o.max_tid) == (partition, p64(first), p64(last))
        for (tid, oid), data in sorted(revisions.items()):
            checksum = ZERO_HASH if data is None else sha1(data).digest()
            row_ = AddObject(p64(oid), p64(tid), 0, checksum, data or b"", None)
            source.connection.send(row_, message_id)
        answer(source, message_id, AnswerFetchObjects(None, None, None, {}))


def fetching(world: World, *features: str, last: int = 12) -> tuple[Destination, End]:
    """S1 is about to fetch partition 0 from S2, up to the last transaction."""
    node = Destination(world)
    node.unfinished(last)
    return node, node.source(*features)
