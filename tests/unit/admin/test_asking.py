"""What storage nodes that are down for the master say to the admin node."""

from __future__ import annotations

import pytest

from neo.admin.asking import ANSWER_SECONDS, NODES_MAX
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.packets import (
    AnswerDownNodes,
    AskDownNodes,
    Error,
    NodeRow,
    NotifyNodeInformation,
    Ping,
    Pong,
)
from tests.support.remote import Remote, error_of
from tests.unit.admin.world import World


class Asking(World):
    """Storage nodes, of which some are down."""

    def down(self, *rows: NodeRow) -> None:
        self.accept().send(NotifyNodeInformation(11.0, list(rows)))
        self.answer = self.ctl().ask(AskDownNodes())

    def node(self, port: int) -> Remote:
        (found,) = [r for r in self.host.dialed if r.peer.address == ("127.0.0.1", port)]
        return found


@pytest.fixture
def world() -> Asking:
    return Asking()


def storage(nid: int, address: bool = True) -> NodeRow:
    where = ("127.0.0.1", 2100 + nid) if address else None
    return (NodeType.STORAGE, where, nid, NodeState.DOWN, None)


def test_each_says_what_it_waits_for_or_only_that_it_lives(world: Asking) -> None:
    """Specification 17.25, 21.7."""
    world.down(storage(1), storage(2), storage(3), storage(4, address=False))
    waiting = world.node(2101)
    waiting.connection.answer(None, Error(ErrorCode.NOT_READY.value, "its server is away"))
    waiting._flush()
    alive = world.node(2102)
    alive.answer(alive.take(Ping), Pong())
    assert not world.answer.done
    world.node(2103).lose("connection refused")
    assert world.answer.result() == AnswerDownNodes([(1, "its server is away"), (2, "")])
    assert waiting.closed and alive.closed


def test_a_machine_that_vanished_is_not_waited_for(world: Asking) -> None:
    world.down(storage(1))
    world.host.advance(ANSWER_SECONDS)
    assert world.answer.result() == AnswerDownNodes([])
    assert world.node(2101).closed


def test_a_process_that_hangs_is_not_waited_for(world: Asking) -> None:
    """Specification 17.25."""
    world.down(storage(1))
    world.node(2101).send(Ping())  # its handshake came
    world.host.advance(ANSWER_SECONDS)
    assert world.answer.result() == AnswerDownNodes([(1, "")])


def test_those_that_run_are_not_asked(world: Asking) -> None:
    world.accept()
    before = len(world.host.dialed)
    assert world.ctl().ask(AskDownNodes()).result() == AnswerDownNodes([])
    assert len(world.host.dialed) == before


def test_not_too_many_at_once(world: Asking) -> None:
    """Specification 17.25."""
    world.down(*(storage(nid) for nid in range(1, NODES_MAX + 9)))
    assert sum(remote.has(Ping) for remote in world.host.dialed) == NODES_MAX


def test_without_primary_master_nobody_knows_who_is_down(world: Asking) -> None:
    assert error_of(world.ctl().ask(AskDownNodes())).code is ErrorCode.NOT_READY
