"""The failure detector declares a silent storage node down if other nodes have its data."""

from __future__ import annotations

import pytest

from neo.master.failure_detector import SILENCE_SECONDS
from neo.node.liveness import LOOK_SECONDS
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.packets import FEATURE_OURS, FEATURES, NotifyReady, Ping, Pong
from tests.support.remote import Remote
from tests.unit.master.cluster import MasterWorld
from tests.unit.master.database import Database

UP, OLD = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
#: The first question, and the tick that is one too many.
LIMIT_SECONDS = SILENCE_SECONDS + 3 * LOOK_SECONDS


class Watched(Database):
    """Three masters, and two storage nodes with the same cells."""

    extra = {FEATURES: [FEATURE_OURS]}

    def __init__(self) -> None:
        super().__init__()
        self.replicas = 1
        self.first, self.second = self.create()
        for storage in (self.first, self.second):
            storage.send(NotifyReady())

    def pass_by(self, seconds: float, *alive: Remote) -> None:
        """Let time pass, while these nodes answer."""
        for _ in range(int(seconds / LOOK_SECONDS)):
            for storage in alive:
                while storage.has(Ping):
                    storage.answer(storage.take(Ping), Pong())
            self.run(LOOK_SECONDS)

    def row(self) -> dict[int, CellState]:
        primary = self.primary()
        assert primary.cluster.state is ClusterState.RUNNING
        return dict(primary.partitions.rows[0])


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_storage_node_that_is_silent_is_given_up(watched: Watched) -> None:
    """Specification 19.26."""
    watched.pass_by(SILENCE_SECONDS, watched.first)
    assert watched.row() == {1: UP, 2: UP}
    watched.pass_by(LIMIT_SECONDS - SILENCE_SECONDS, watched.first)
    assert watched.row() == {1: UP, 2: OLD}
    assert watched.second.closed and not watched.first.closed


def test_storage_nodes_that_answer_stay(watched: Watched) -> None:
    watched.pass_by(4 * LIMIT_SECONDS, watched.first, watched.second)
    assert watched.row() == {1: UP, 2: UP}


def test_one_that_was_held_up_for_a_while_stays(watched: Watched) -> None:
    for _ in range(5):
        watched.pass_by(SILENCE_SECONDS - LOOK_SECONDS, watched.first)
        watched.pass_by(2 * LOOK_SECONDS, watched.first, watched.second)
    assert watched.row() == {1: UP, 2: UP}


def test_nobody_is_given_up_when_all_are_silent(watched: Watched) -> None:
    watched.pass_by(2 * LIMIT_SECONDS)
    assert watched.row() == {1: UP, 2: UP}


def test_nobody_is_given_up_when_the_other_one_falls_silent_too(watched: Watched) -> None:
    """A fault that cuts off both nodes need not be noticed for both at the same tick
    (specification 19.26)."""
    watched.pass_by(SILENCE_SECONDS / 2 - 2 * LOOK_SECONDS, watched.first)
    watched.pass_by(2 * LIMIT_SECONDS)
    assert watched.row() == {1: UP, 2: UP}


def test_the_last_copy_is_not_given_up(watched: Watched) -> None:
    """Specification 19.26."""
    watched.first.lose("killed")
    watched.pass_by(2 * LIMIT_SECONDS)
    assert watched.row() == {1: OLD, 2: UP}
    assert not watched.second.closed


def test_a_node_of_another_implementation_is_left_to_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "extra", {})
    watched = Watched()
    watched.pass_by(2 * LIMIT_SECONDS, watched.first)
    assert watched.row() == {1: UP, 2: UP}
    assert not watched.second.has(Ping)


def test_a_single_master_waits_as_its_storage_nodes_do() -> None:
    world = MasterWorld(replicas=1)
    world.extra = Watched.extra
    _, second = world.running(2)
    world.host.advance(2 * LIMIT_SECONDS)
    assert not second.has(Ping) and not second.closed
