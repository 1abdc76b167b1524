"""The operator of a simulated cluster: commands, their answers, and refusals that changed something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.ids import MAX_TID
from neo.protocol.packets import (
    AnswerClusterState,
    AskClusterState,
    Error,
    FlushLog,
    Message,
    Pong,
    SetNumReplicas,
    Truncate,
)
from tests.simulator.admin_watch import watched_administration
from tests.simulator.canaries import planted
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.console import Command
from tests.simulator.history import History, Void
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.world import Violation, World


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster


@contextmanager
def running() -> Iterator[Cluster]:
    world = World(1)
    cluster = Cluster(world, Shape(1, 2), lambda name: MemoryDisk(world, name))
    cluster.start()
    try:
        yield cluster
    finally:
        for disk in cluster.disks.values():
            disk.close()


def told(cluster: Cluster, message: Message) -> Message | None:
    """Return the answer that the operator gets."""
    heard: list[Message | None] = []
    Command(cluster, message, heard.append)
    cluster.world.run_until(lambda: bool(heard), 60, "an answer")
    return heard[0]


def test_a_command_gets_its_answer_through_the_admin_node(cluster: Cluster) -> None:
    assert told(cluster, AskClusterState()) == AnswerClusterState(ClusterState.RUNNING)
    assert told(cluster, FlushLog()) == Pong()


def test_a_refusal_is_an_answer(cluster: Cluster) -> None:
    answer = told(cluster, SetNumReplicas(100))
    assert isinstance(answer, Error) and answer.code == ErrorCode.DENIED.value


def test_an_admin_node_that_is_away_answers_nothing(cluster: Cluster) -> None:
    cluster.admin.kill()
    assert told(cluster, AskClusterState()) is None


def test_an_admin_node_that_hangs_is_not_waited_for(cluster: Cluster) -> None:
    cluster.admin.pause()
    assert told(cluster, AskClusterState()) is None


def test_a_refusal_that_changes_nothing_is_right(cluster: Cluster) -> None:
    history = History(cluster.world)
    with watched_administration(history):
        told(cluster, SetNumReplicas(100))
        told(cluster, Truncate(MAX_TID))
    assert not history.voids


def test_a_refusal_with_consequences_is_found() -> None:
    with (
        planted("changed-before-checked"),  # before a master has a handler
        running() as cluster,
        watched_administration(History(cluster.world)),
        pytest.raises(Violation, match="was refused"),
    ):
        told(cluster, SetNumReplicas(100))


def test_a_truncation_leaves_a_void(cluster: Cluster) -> None:
    history = History(cluster.world)
    master = cluster.master_core
    assert master is not None
    kept = master.cluster.tids.ttid()
    master.cluster.last_tid = last = master.cluster.tids.ttid()
    with watched_administration(history):
        told(cluster, Truncate(kept))
    assert history.voids == [Void(kept, last)]
