"""Storage nodes of a backup cluster come and go, and are packed."""

from __future__ import annotations

import pytest

from neo.master.phases.recovery import UNKNOWN_TABLES
from neo.protocol.enums import ClusterState, NodeType
from neo.protocol.packets import (
    AnswerPack,
    AnswerPartitionTable,
    AnswerRecovery,
    AnswerUnfinishedTransactions,
    AskLastTransaction,
    AskPack,
    AskPartitionTable,
    AskRecovery,
    AskUnfinishedTransactions,
    InvalidateObjects,
    NotifyPack,
    NotifyReplicationDone,
    Replicate,
    RequestIdentification,
    SetClusterState,
    StartOperation,
    Truncate,
)
from tests.support.remote import Remote
from tests.unit.master.backup_world import OUT, UP, BackupWorld, durable
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
    storages[0].send(NotifyReplicationDone(1, tid(21)))
    durable(storages[0], 0, ptid=2)  # the partition table without the lost node
    durable(storages[0], 0, ptid=2)
    durable(storages[0], 21, ptid=2)
    back = world.join(NodeType.STORAGE, 2, port=9102)
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
    storage.send(NotifyReplicationDone(1, tid(25)))
    durable(storage, 25, ptid=2)
    assert reader.take(InvalidateObjects).tid == tid(25)
    back.send(NotifyReplicationDone(1, tid(21)))
    assert world.master.partitions.rows[1][2] is OUT, "readers see more than it has"
    assert back.take(Replicate) == Replicate(tid(25), "", {1: ("127.0.0.1", 9101)})
    back.send(NotifyReplicationDone(1, tid(25)))
    assert world.master.partitions.rows[1][2] is UP


def restarted(world: BackupWorld) -> Remote:
    """The storage node has all data up to 15, and some up to 18."""
    storage = world.storage(1, None, nid=1)
    rows = spread(1)
    storage.lose()
    storage = world.join(NodeType.STORAGE, 1, port=9101)
    storage.answer(storage.take(AskRecovery), AnswerRecovery(7, tid(15), None))
    storage.answer(storage.take(AskPartitionTable), AnswerPartitionTable(7, 0, rows))
    world.verify(storage, ltid=tid(18))
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP
    admin = world.admin()
    assert admin.ask(AskRecovery()).result().backup_tid == tid(15)
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
    for partition in range(4):
        assert not reader.closed
        storage.send(NotifyReplicationDone(partition, tid(18)))
    assert reader.closed


def test_a_backup_without_configuration_can_be_left() -> None:
    world = MasterWorld()
    storage = world.join(NodeType.STORAGE, 1, port=9101)
    storage.answer(storage.take(AskRecovery), AnswerRecovery(7, tid(15), None))
    storage.answer(storage.take(AskPartitionTable), AnswerPartitionTable(7, 0, spread(1)))
    world.verify(storage, ltid=tid(18))
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP and not world.host.dialed
    world.admin().ask(SetClusterState(ClusterState.STOPPING_BACKUP)).result()
    world.remember(storage, 7, spread(1))
    assert storage.take(Truncate) == Truncate(tid(15))


# -- packs ---------------------------------------------------------------------------------------


def test_packs_as_its_upstream_does_when_it_has_all_of_it(world: BackupWorld) -> None:
    """Specification 13.21."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    upstream.send(NotifyPack(tid(21)))
    assert not storage.has(AskPack)
    storage.send(NotifyReplicationDone(1, tid(21)))
    durable(storage, 0)
    durable(storage, 21)
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
    """The revision that deletes an object may be packed away before all replicas have got it."""
    upstream, (storage,) = world.backingup()
    upstream.send(NotifyPack(tid(21)))
    question = storage.take(AskPack)
    upstream.send(InvalidateObjects(tid(25), [tid(1)]))
    upstream.send(NotifyPack(tid(25)))
    storage.answer(question, AnswerPack(True))
    assert not storage.has(AskPack)
    storage.send(NotifyReplicationDone(1, tid(25)))
    durable(storage, 0)
    durable(storage, 25)
    assert storage.take(AskPack).tid == tid(25)


def test_packs_at_once_when_nothing_is_missing(world: BackupWorld) -> None:
    """Specification 13.21."""
    upstream, (storage,) = world.backingup()
    upstream.send(NotifyPack(tid(21)))
    assert storage.take(AskPack).tid == tid(21)


def test_tells_backups_of_packs_at_once_and_later() -> None:
    """Specification 12.12."""
    world = MasterWorld()
    (storage,) = world.running(1)

    def backup() -> Remote:
        remote = Remote.connect(world.master)
        extra = {"backup": b"bak", "features": ["pack"]}
        remote.ask(RequestIdentification(NodeType.CLIENT, None, None, "test", None, extra))
        return remote

    first, client = backup(), world.client()
    world.master.cluster.last_tid = tid(5)
    client.ask(AskPack(tid(5)))
    assert first.take(NotifyPack).tid == tid(5) == backup().take(NotifyPack).tid
    assert not client.has(NotifyPack)
