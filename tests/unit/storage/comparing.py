"""A comparison of cells, in which the test plays the other nodes."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import ZERO_HASH, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AcceptIdentification,
    AnswerCheckSerialRange,
    AnswerCheckTIDRange,
    AskCheckSerialRange,
    AskCheckTIDRange,
    CheckPartition,
    Message,
    NotifyFeatures,
    NotifyPartitionChecked,
    NotifyReady,
    RequestIdentification,
    StartOperation,
)
from tests.unit.storage.replicas import reply
from tests.unit.storage.requests import commit
from tests.unit.storage.world import UP, End, World

MAX = p64(2**62)


def digest(*numbers: int) -> bytes:
    return sha1(",".join(map(str, numbers)).encode()).digest() if numbers else ZERO_HASH


def full(world: World, master: End) -> None:
    client = world.client(master)
    commit(master, client, 10, 12, 0)
    commit(master, client, 14, 16, 2)
    commit(master, client, 18, 20, 0, serial=12)


class Comparison:
    """S1 compares a cell with those of other nodes, which the test plays."""

    def __init__(self, world: World, master: End) -> None:
        self.world = world
        self.master = master
        self.others: dict[int, End] = {}

    def replies(self, nid: int, *messages: Message) -> None:
        """To one question each."""
        kind: dict[type[Message], Any] = {
            AnswerCheckTIDRange: AskCheckTIDRange,
            AnswerCheckSerialRange: AskCheckSerialRange,
        }
        for message in messages:
            reply(self.others[nid], kind[type(message)], message)

    def insist(self, answers: dict[int, Message]) -> None:
        """The same answers each time a difference is looked at again."""
        for pause in (0, 1, 3):
            self.world.settle()
            self.world.host.advance(pause)
            for nid, message in answers.items():
                self.replies(nid, message)

    def result(self) -> list[Message]:
        """Return the messages that the master got until the end."""
        self.world.wait(
            lambda: any(isinstance(m, NotifyPartitionChecked) for _, m in self.master.inbox),
            "the check does not end",
        )
        return [message for _, message in self.master.inbox]


class Compared(Comparison):
    """S1 has 12, 16 and 20 in partition 0, with replicas on other nodes."""

    def __init__(self, world: World, *others: int) -> None:
        super().__init__(world, world.join())
        self.master.send(NotifyFeatures([FEATURE_OURS]))
        for nid in others:
            row = (NodeType.STORAGE, address(nid), nid, NodeState.RUNNING, 20.0 + nid)
            world.notify(self.master, row)
        cells = [(nid, UP) for nid in (1, *others)]
        world.send_table(self.master, [cells, [(1, UP)]])
        self.master.send(StartOperation(False))
        self.master.take(NotifyReady)
        full(world, self.master)

    def check(self, reference: int | None = None) -> None:
        source = "", None if reference is None else address(reference)
        self.master.send(CheckPartition(0, source, ZERO_TID, p64(20)))

    def connect(self, *nids: int) -> None:
        for nid in nids:
            end = self.world.take_dial()
            reply(end, RequestIdentification, AcceptIdentification(NodeType.STORAGE, nid, 1))
            self.others[nid] = end

    def lose(self, nid: int) -> None:
        """The node ends, and the master knows."""
        row = (NodeType.STORAGE, address(nid), nid, NodeState.DOWN, 20.0 + nid)
        self.world.notify(self.master, row)

    def find_equal(self) -> None:
        """S2 has the same."""
        self.replies(2, TIDS, SERIALS)
        assert self.result() == [FINE]


def comparing(world: World, *others: int, tails: bool = False) -> Compared:
    """S1 has begun to ask these nodes; ``tails``: the master knows of cells that are behind."""
    checked = Compared(world, *others)
    if tails:
        checked.master.send(NotifyFeatures([FEATURE_OURS]))
    checked.check()
    checked.connect(*others)
    return checked


def address(nid: int) -> tuple[str, int]:
    return ("127.0.0.1", 2000 + nid)


TIDS = AnswerCheckTIDRange(3, digest(12, 16, 20), p64(20))
SERIALS = AnswerCheckSerialRange(3, digest(12, 16, 20), p64(20), digest(0, 2, 0), p64(0))
FINE = NotifyPartitionChecked(0, "")
