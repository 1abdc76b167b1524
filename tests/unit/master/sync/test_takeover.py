"""A synchronous backup takes over (specification 25.25)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.packets import (
    AnswerRecovery,
    AskRecovery,
    SetClusterState,
    StopOperation,
    Truncate,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import spread, tid
from tests.unit.master.sync_world import SyncWorld, complete, locks, unlocks, vote

STOP = SetClusterState(ClusterState.STOPPING_BACKUP)


@pytest.fixture
def world() -> SyncWorld:
    return SyncWorld()


def truncated_at(world: SyncWorld, storage: Remote) -> bytes:
    """Return where the database is cut."""
    storage.take(StopOperation)
    world.remember(storage, 7, spread(1))
    cut = storage.take(Truncate).tid
    storage.answer(storage.take(AskRecovery), AnswerRecovery(7, None, cut))
    world.verify(storage, ltid=cut)
    assert world.master.cluster.state is ClusterState.RUNNING
    return cut


def test_what_is_locked_is_finished_and_the_rest_given_up(world: SyncWorld) -> None:
    """Specification 25.25: the command waits, it does not fail because of load."""
    upstream, (storage,) = world.in_sync()
    first, second = world.lock(upstream, 24, 1), world.lock(upstream, 28, 1)
    vote(storage, storage)
    answer = world.admin().ask(STOP)
    assert error_of(second).code is ErrorCode.INCOMPLETE_TRANSACTION
    assert not world.sync.in_sync and not answer.done
    locks(storage)
    assert unlocks(storage) == [tid(20)]
    world.host.advance()
    assert not answer.done, "it is not durable yet"
    complete(24, storage)
    assert first.done
    world.host.advance()
    assert truncated_at(world, storage) == tid(24)
    answer.result()


def test_a_backup_whose_upstream_was_destroyed_has_what_it_locked(world: SyncWorld) -> None:
    """Specification 25.5, 25.25."""
    upstream, (storage,) = world.in_sync()
    world.lock(upstream, 24, 1)
    world.locked(upstream, 28, storage)
    upstream.lose()
    complete(24, storage)
    world.admin().ask(STOP)
    assert truncated_at(world, storage) == tid(24)


def test_commands_wait_for_the_same_end(world: SyncWorld) -> None:
    """Specification 25.25."""
    upstream, (storage,) = world.in_sync()
    world.lock(upstream, 24, 1)
    vote(storage)
    answers = [world.admin().ask(STOP), world.admin().ask(STOP)]
    locks(storage)
    complete(24, storage)
    world.host.advance()
    assert truncated_at(world, storage) == tid(24)
    assert all(answer.result() for answer in answers)


def test_a_node_that_is_lost_meanwhile_keeps_the_cluster_a_backup() -> None:
    """Specification 13.28: what is deleted would come back with it."""
    world = SyncWorld(replicas=1)
    upstream, (first, second) = world.in_sync(2)
    world.lock(upstream, 24, 1)
    vote(first, second)
    locks(first)
    answer = world.admin().ask(STOP)
    second.lose()
    world.host.advance()
    complete(24, first, ptid=2)
    world.host.advance()
    assert error_of(answer).message.startswith("S2 must run")
    assert world.master.cluster.state is ClusterState.BACKINGUP
    assert unlocks(first) == [tid(20)]


def test_the_command_is_refused_when_the_operation_stops_meanwhile(world: SyncWorld) -> None:
    """The next verification decides what was locked (specification 25.24)."""
    upstream, (storage,) = world.in_sync()
    world.lock(upstream, 24, 1)
    vote(storage)
    answer = world.admin().ask(STOP)
    storage.lose()
    assert error_of(answer).code is ErrorCode.NOT_READY
    assert world.master.cluster.state is ClusterState.RECOVERING
    assert world.master.backup.synchronous is None
