"""Names and indices of peers while a node joins: it knows the others from its configuration."""

from __future__ import annotations

from neo.transactor.catchup import CATCH_UP_COUNT
from neo.transactor.durable import Begun, JournalState, empty_log
from neo.transactor.engine import Engine, Timing
from neo.transactor.members import Members, first_members
from neo.transactor.messages import Ask, Entries, Entry, Kind, Message, Record, Sid, Spec, Status
from neo.transactor.node import Node

#: The first members of the log, in their order.
FIRST = first_members((name, ("host", 1)) for name in ("b", "c", "d"))


class Joiner:
    """A node named ``a``, first in its own configuration. Its disk is always synced."""

    def __init__(self, *others: str) -> None:
        configured = first_members((name, ("host", 1)) for name in ("a", *others))
        durable = JournalState(7, 7 << 32).durable(Begun.RECOVERED, empty_log(configured))
        self.records: list[Record] = []
        self.sent: list[tuple[str, Message]] = []
        self.engine = Engine("a", durable, self, Timing())
        self.node = Node(self.engine, self)

    def asks(self) -> list[tuple[str, int]]:
        """Return the requests that the node sends within some ticks, and their addressees."""
        self.sent.clear()
        for _ in range(Timing().resend):
            self.node.tick()
        return [(peer, message.tid) for peer, message in self.sent if isinstance(message, Ask)]

    # host of the node, LogReader

    def append(self, records: list[Record]) -> None:
        self.records += records

    def sync(self) -> None:
        self.node.synced()

    def transmit(self, peer: str, messages: list[Message]) -> None:
        self.sent += [(peer, message) for message in messages]

    def decided(self, entries: list[Entry]) -> None:
        pass

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        return []


def changes(*lists: Members) -> tuple[Spec, ...]:
    return tuple(Spec(Sid(0, n), Kind.MEMBERS, each.encode()) for n, each in enumerate(lists, 1))


def test_journals_are_not_those_of_other_members_while_the_first_members_are_not_known() -> None:
    """The node that joins is first in its own list, so the others have other indices there."""
    joiner = Joiner("b", "c", "d")
    for name, journal in (("b", 20), ("c", 30), ("d", 40)):
        joiner.node.receive(name, [Status(2, journal, False, False)])
    log = changes(FIRST.added("a", ("host", 1)))
    joiner.node.receive("b", [Entries(1, log, FIRST.encode(), 2), Status(2, 20, False, False)])
    assert joiner.engine.members.nodes == (0, 1, 2, 3) and joiner.engine.me == 3
    for name, journal in (("b", 20), ("c", 30), ("d", 40)):
        joiner.node.receive(name, [Status(2, journal, False, False)])
    assert joiner.engine.peers.known == {0: 20, 1: 30, 2: 40}
    assert not joiner.engine.peers.strangers


def test_the_log_is_learned_when_all_first_members_have_left() -> None:
    """The log is longer than one message, and the node knows none of the members that continue it
    (specification 20.15, 20.20)."""
    now = FIRST
    lists = [now := now.added(name, ("host", 1)) for name in ("e", "f", "a")]
    lists += [now.moved("e", ("elsewhere", n)) for n in range(CATCH_UP_COUNT)]
    lists += [now := now.removed(name) for name in ("b", "c", "d")]
    log = changes(*lists)
    end = len(log) + 1
    joiner = Joiner("e", "f")
    assert joiner.asks() == [("e", 1), ("f", 1)]
    part = log[:CATCH_UP_COUNT]
    joiner.node.receive("e", [Entries(1, part, FIRST.encode(), end)])
    assert joiner.engine.tid == len(part) + 1
    joiner.node.receive("f", [Status(end, 60, False, False)])
    ((peer, tid),) = joiner.asks()
    assert peer in ("e", "f") and tid == len(part) + 1
    joiner.node.receive(peer, [Entries(tid, log[len(part) :], FIRST.encode(), end)])
    assert joiner.engine.tid == end and joiner.engine.members == now
    assert [each.name for each in joiner.engine.members.all] == ["e", "f", "a"]
