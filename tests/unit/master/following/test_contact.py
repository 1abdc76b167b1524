"""A backup reports since when its upstream cluster has been silent, and why."""

from __future__ import annotations

from typing import Any

import pytest

from neo.master.following.contact import LATE_SECONDS, SILENCE_SECONDS
from neo.node.liveness import LOOK_SECONDS
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.packets import (
    AskUpstream,
    NotifyClusterInformation,
    Ping,
    Pong,
    RequestIdentification,
)
from neo.topology.masters import RETRY_SECONDS
from tests.support.remote import Remote, error_of
from tests.unit.master.backup_world import BackupWorld
from tests.unit.master.cluster import MasterWorld, spread


@pytest.fixture
def world() -> BackupWorld:
    return BackupWorld()


def told(world: MasterWorld) -> Any:
    answer = world.admin().ask(AskUpstream()).result()
    assert answer.cluster == "up"
    return answer


def pass_by(world: BackupWorld, seconds: float, *alive: Remote) -> None:
    """Let time pass, while these nodes answer."""
    for _ in range(int(seconds / LOOK_SECONDS)):
        for remote in alive:
            while remote.has(Ping):
                remote.answer(remote.take(Ping), Pong())
        world.host.advance(LOOK_SECONDS)


def test_an_upstream_that_answers_is_heard_however_long_nothing_is_written(
    world: BackupWorld,
) -> None:
    upstream, _ = world.backingup()
    pass_by(world, SILENCE_SECONDS + 5, upstream)
    assert told(world).seconds is None and not upstream.closed


def test_an_upstream_that_is_lost(world: BackupWorld) -> None:
    """Specification 17.18."""
    upstream, _ = world.backingup()
    pass_by(world, 7, upstream)
    upstream.lose("reset by the peer")
    pass_by(world, 20)
    answer = told(world)
    assert answer.ever and 20 <= answer.seconds <= 20 + 3 * LOOK_SECONDS
    assert answer.reason == "reset by the peer"
    world.host.dialed[-1].lose("connection refused")
    assert told(world).reason == "master 127.0.0.1:7000: " + (
        "connection with unidentified peer (127.0.0.1:7000) ended: connection refused"
    )


def test_an_upstream_that_was_stopped_is_not_lost(
    world: BackupWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    upstream, _ = world.backingup()
    upstream.send(NotifyClusterInformation(ClusterState.STOPPING))
    upstream.lose("closed by the peer")
    assert told(world).reason == "it was stopped"
    assert "the upstream cluster was stopped" in caplog.text and "lost" not in caplog.text


def test_an_upstream_that_is_silent_though_tcp_is_open(world: BackupWorld) -> None:
    """Specification 13.9."""
    upstream, _ = world.backingup()
    pass_by(world, 10, upstream)
    pass_by(world, LATE_SECONDS)
    assert told(world).seconds is None, "a little late"
    pass_by(world, 3 * LOOK_SECONDS)
    answer = told(world)
    assert answer.ever and LATE_SECONDS < answer.seconds < LATE_SECONDS + 6 * LOOK_SECONDS
    assert "does not answer" in answer.reason and not upstream.closed
    pass_by(world, 2 * LOOK_SECONDS, upstream)
    assert told(world).seconds is None, "it answers again"


def test_a_connection_on_which_nothing_comes_is_given_up_and_made_anew(world: BackupWorld) -> None:
    """Specification 13.9."""
    upstream, _ = world.backingup()
    pass_by(world, SILENCE_SECONDS + RETRY_SECONDS + 3 * LOOK_SECONDS)
    assert upstream.closed and len(world.host.dialed) == 2
    assert told(world).seconds > SILENCE_SECONDS
    world.upstream(0)
    assert told(world).seconds is None


@pytest.mark.parametrize("reached", [False, True])
def test_an_upstream_that_was_never_reached(world: BackupWorld, reached: bool) -> None:
    """Specification 17.18."""
    world.starting()
    remote = world.host.dialed[-1]
    if reached:
        remote.take(RequestIdentification)  # TCP is open, but nothing comes
    else:
        remote.lose("connection refused")
    seconds = 31 if reached else 0.5
    pass_by(world, seconds)
    answer = told(world)
    assert not answer.ever and answer.seconds == pytest.approx(seconds)
    assert ("does not answer" if reached else "connection refused") in answer.reason


def test_an_upstream_that_does_not_fit(world: BackupWorld) -> None:
    world.starting()
    world.upstream(0, rows=spread(1, partitions=3))
    answer = told(world)
    assert not answer.ever and "has 3 partitions and this one 4" in answer.reason


def test_a_backup_that_is_not_configured_follows_nobody(world: BackupWorld) -> None:
    world.starting()
    backup = world.master.backup.current
    assert backup is not None
    backup.stop()
    backup.upstream_name = None
    backup.start()
    answer = world.admin().ask(AskUpstream()).result()
    assert (answer.cluster, answer.ever) == ("", False)
    assert answer.reason == "'upstream_cluster' is not set"


def test_a_cluster_that_is_no_backup_refuses() -> None:
    """Specification 17.18."""
    world = MasterWorld()
    assert error_of(world.admin().ask(AskUpstream())).code is ErrorCode.DENIED
