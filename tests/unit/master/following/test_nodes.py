"""Storage nodes of a backup cluster come and go, and are packed."""

from __future__ import annotations

import pytest

from neo.master.phases.recovery import UNKNOWN_TABLES
from neo.protocol.enums import ClusterState
from neo.protocol.packets import (
    AnswerPack,
    AnswerUnfinishedTransactions,
    AskLastTransaction,
    AskPack,
    AskRecovery,
    AskUnfinishedTransactions,
    InvalidateObjects,
    NotifyPack,
    Replicate,
    SetClusterState,
    StartOperation,
    Truncate,
)
from tests.support.remote import Remote
from tests.unit.master.backup_world import OUT, UP, BackupWorld, complete, durable, fetched
from tests.unit.master.cluster import MasterWorld, spread, tid


@pytest.fixture
def world() -> BackupWorld:
    return BackupWorld()


# -- storage nodes come and go -------------------------------------------------------------------


def replicated(world: BackupWorld) -> tuple[Remote, Remote, Remote]:
    """Make a backup with two copies of all partitions; the second node was lost, is back and out of
    date."""
    upstream, storages = world.backingup(2)
    storages[1].lose()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    fetched(storages[0], 21, 1)
    complete(21, storages[0], ptid=2)  # the partition table without the lost node
    back = world.join_storage(2)
    assert back.take(StartOperation).backup
    storages[0].received.clear()
    return upstream, storages[0], back


def test_a_node_that_was_away_joins_when_it_has_what_readers_see() -> None:
    """Specification 13.20."""
    world = BackupWorld(replicas=1)
    upstream, storage, back = replicated(world)
    answer = back.ask(AskUnfinishedTransactions([0, 1, 2, 3])).result()
    assert answer == AnswerUnfinishedTransactions(tid(21), [])
    reader = world.client()
    upstream.send(InvalidateObjects(tid(25), [tid(1)]))
    fetched(storage, 25, 1)
    durable(storage, 25, ptid=2)
    assert reader.take(InvalidateObjects).tid == tid(25)
    fetched(back, 21, 1)
    assert world.master.partitions.rows[1][2] is OUT, "readers see more than it has"
    assert back.take(Replicate) == Replicate(tid(25), "", {1: ("127.0.0.1", 9101)})
    fetched(back, 25, 1)
    assert world.master.partitions.rows[1][2] is UP


def restarted(world: BackupWorld) -> Remote:
    """The storage node has all data up to 15, and some up to 18."""
    storage = world.join_storage(1)
    world.remember(storage, 7, spread(1), tid(15))
    world.verify(storage, ltid=tid(18))
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP
    assert world.admin().ask(AskRecovery()).result().backup_tid == tid(15)
    world.upstream(18)
    assert world.master.cluster.state is ClusterState.BACKINGUP
    return storage


def test_a_restart_goes_on_as_a_backup(world: BackupWorld) -> None:
    """Specification 13.3."""
    storage = restarted(world)
    assert storage.take(Replicate).tid == tid(18), "what was fetched in part is completed"


def test_after_a_restart_readers_join_again_when_what_was_fetched_in_part_is_complete(
    world: BackupWorld,
) -> None:
    """Changes until then were announced to another master."""
    storage = restarted(world)
    durable(storage, 15, ptid=7 + UNKNOWN_TABLES)
    reader = world.client()
    assert reader.ask(AskLastTransaction()).result().tid == tid(15)
    fetched(storage, 18, 0, 1, 2)
    assert not reader.closed
    fetched(storage, 18, 3)
    assert reader.closed


def test_a_backup_without_configuration_can_be_left() -> None:
    world = MasterWorld()
    storage = world.join_storage(1)
    world.remember(storage, 7, spread(1), tid(15))
    world.verify(storage, ltid=tid(18))
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP and not world.host.dialed
    world.admin().ask(SetClusterState(ClusterState.STOPPING_BACKUP))
    world.remember(storage, 7, spread(1))
    assert storage.take(Truncate) == Truncate(tid(15))


# -- packs ---------------------------------------------------------------------------------------


def test_packs_as_its_upstream_does_when_it_has_all_of_it(world: BackupWorld) -> None:
    """Specification 13.21."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    upstream.send(NotifyPack(tid(21)))
    assert not storage.has(AskPack)
    fetched(storage, 21, 1)
    complete(21, storage)
    question = storage.take(AskPack)
    assert question.tid == tid(21)
    storage.answer(question, AnswerPack(True))
    upstream.send(NotifyPack(tid(21)))
    assert not storage.has(AskPack), "once is enough"


def test_a_cell_that_is_behind_a_pack_is_ordered_to_go_on_beyond_it(world: BackupWorld) -> None:
    """The pack needs all transactions up to its tid."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    fetched = [m.tid for m in storage.received if isinstance(m, Replicate) and m.upstream_name]
    assert fetched == [tid(21)]
    upstream.send(InvalidateObjects(tid(31), [tid(1)]))
    storage.received.clear()
    upstream.send(NotifyPack(tid(31)))
    fetched = [m.tid for m in storage.received if isinstance(m, Replicate) and m.upstream_name]
    assert fetched == [tid(31)]


def test_a_pack_that_follows_another_waits_for_what_it_lacks(world: BackupWorld) -> None:
    """The revision that deletes an object may be packed away before all replicas have got it. The first
    one begins at once, because nothing is missing (specification 13.21)."""
    upstream, (storage,) = world.backingup()
    upstream.send(NotifyPack(tid(21)))
    question = storage.take(AskPack)
    assert question.tid == tid(21)
    upstream.send(InvalidateObjects(tid(25), [tid(1)]))
    upstream.send(NotifyPack(tid(25)))
    storage.answer(question, AnswerPack(True))
    assert not storage.has(AskPack)
    fetched(storage, 25, 1)
    complete(25, storage)
    assert storage.take(AskPack).tid == tid(25)
