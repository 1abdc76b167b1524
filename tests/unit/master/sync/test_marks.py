"""A synchronous backup keeps what is prepared in its upstream cluster (specification 25)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.master.commit import outcomes
from neo.master.commit.sync_backups import JOIN_SECONDS
from neo.master.sync.synchronous import LEASE_INTERVAL, RETRY_SECONDS, TICK_SECONDS
from neo.protocol.enums import CellState, ClusterState, ErrorCode
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AnswerJoinSync,
    AnswerPrepareBackup,
    AnswerPreparedTransactions,
    AnswerRecovery,
    AnswerSyncLease,
    AskJoinSync,
    AskLockBackup,
    AskPrepareBackup,
    AskRecovery,
    AskSyncLease,
    AskUnfinishedTransactions,
    AskVoted,
    Error,
    ForgetPrepared,
    InvalidateObjects,
    NotifyAborted,
    NotifyPartitionChanges,
    NotifyPrepared,
    NotifyReplicationDone,
    SetClusterState,
    StartOperation,
    StopOperation,
    SyncMark,
    Truncate,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.backup_world import OTHER, SOURCE, UP, BackupWorld
from tests.unit.master.cluster import spread, tid
from tests.unit.master.committing import lock as lock_here
from tests.unit.master.prepared_world import NOTHING, PreparedWorld, decide, states
from tests.unit.master.sync_world import Growing, SyncWorld, complete, confirm, locks, unlocks, vote

XID = b"order-7"


def mark(number: int, *oids: int) -> SyncMark:
    """The mark of the transaction with this ttid, with its metadata."""
    partitions = sorted({each % 4 for each in (number, *oids)})
    return (tid(number), XID, 5.0, b"bob\nbuy", partitions, [tid(oid) for oid in oids], [])


def prepare(upstream: Remote, number: int = 20, *oids: int) -> Any:
    """Ask the backup to keep this transaction, which changes object 4 unless it is told otherwise."""
    return upstream.ask(AskPrepareBackup(mark(number, *(oids or (4,)))))


def kept(upstream: Remote, *storages: Remote) -> None:
    """Let the backup keep transaction 20."""
    answer = prepare(upstream)
    vote(*storages)
    answer.result()


def refuse(storage: Remote, code: ErrorCode, text: str) -> None:
    """Refuse AskVoted."""
    storage.answer(storage.take(AskVoted), Error(code.value, text))


def join(upstream: Remote, last: int, *marks: SyncMark) -> None:
    upstream.answer(upstream.take(AskJoinSync), AnswerJoinSync(tid(last), list(marks)))


def leave(world: SyncWorld, upstream: Remote) -> None:
    """Let the upstream cluster refuse the next lease."""
    world.host.advance(LEASE_INTERVAL)
    error = Error(ErrorCode.DENIED.value, "the backup was too slow")
    upstream.answer(upstream.take(AskSyncLease), error)
    assert not world.sync.in_sync


def aborts(storage: Remote) -> list[bytes]:
    """Return the ttids that a node was told to drop."""
    return [m.ttid for m in storage.received if type(m) is AbortTransaction]


@pytest.fixture
def world() -> SyncWorld:
    return SyncWorld()


# -- prepare -------------------------------------------------------------------------------------


def test_it_is_kept_when_all_readable_cells_have_the_rows_and_the_mark(world: SyncWorld) -> None:
    """Specification 25.26: in the partitions of its metadata, stores and checks."""
    upstream, (first, second) = world.in_sync(2)  # partitions 0 and 2; 1 and 3
    answer = prepare(upstream, 20, 1)
    assert vote(first) == [AskVoted(tid(20), "up", {0: SOURCE}, [], mark(20, 1))]
    assert not answer.done
    assert vote(second) == [AskVoted(tid(20), "up", {1: OTHER}, [tid(1)], mark(20, 1))]
    assert answer.result() == AnswerPrepareBackup(tid(20))
    assert world.sync.in_sync and world.sync.keeps(tid(20))


def test_a_backup_that_is_not_in_sync_keeps_nothing(world: SyncWorld) -> None:
    """Specification 25.26, 25.16."""
    upstream, (storage,) = world.in_sync()
    leave(world, upstream)
    error = error_of(prepare(upstream))
    assert error.code is ErrorCode.INCOMPLETE_TRANSACTION
    assert error.message == "the backup was too slow"
    assert not storage.has(AskVoted) and not world.sync.keeps(tid(20))


def test_a_node_that_cannot_keep_it_ends_the_membership_first(world: SyncWorld) -> None:
    """Specification 25.26, 25.40."""
    upstream, (storage,) = world.in_sync()
    held = []
    answer = prepare(upstream)
    answer.then(lambda _: held.append(world.sync.in_sync))
    refuse(storage, ErrorCode.INCOMPLETE_TRANSACTION, "its disk is full")
    assert "its disk is full" in error_of(answer).message
    assert held == [False]


def test_a_partition_that_upstream_does_not_serve_ends_the_membership(world: SyncWorld) -> None:
    """Specification 25.26."""
    upstream, (storage,) = world.in_sync()
    changes = [(partition, 1, CellState.OUT_OF_DATE) for partition in (0, 2)]
    upstream.send(NotifyPartitionChanges(2, 0, changes))
    assert "does not serve all" in error_of(prepare(upstream)).message
    assert not world.sync.in_sync and not storage.has(AskVoted)


def test_what_was_not_answered_is_refused_when_the_backup_leaves(world: SyncWorld) -> None:
    """Specification 25.26, 25.52: the nodes may have the mark, and upstream may keep it."""
    upstream, (storage,) = world.in_sync()
    answer = prepare(upstream)
    leave(world, upstream)
    assert error_of(answer).message == "the backup was too slow"
    vote(storage)
    assert world.sync.keeps(tid(20)) and aborts(storage) == []


def test_a_node_that_is_lost_is_waited_for_until_its_cells_are_out_of_date() -> None:
    """Specification 25.26, 24.5: in a partition table that is confirmed."""
    world = SyncWorld(partitions=1, replicas=1)
    upstream, (first, second) = world.in_sync(2)
    answer = upstream.ask(AskPrepareBackup((tid(20), XID, 5.0, b"", [0], [tid(4)], [])))
    vote(first)
    second.lose()
    assert not answer.done
    confirm(first, 2)
    world.host.advance()
    assert answer.done and world.sync.in_sync


# -- the end -------------------------------------------------------------------------------------


def test_a_rollback_drops_it(world: SyncWorld) -> None:
    """Specification 25.27."""
    upstream, (first, second) = world.in_sync(2)
    kept(upstream, first)
    upstream.send(NotifyAborted(tid(20)))
    assert aborts(first) == aborts(second) == [tid(20)]
    assert not world.sync.keeps(tid(20)) and world.sync.in_sync


def test_a_rollback_of_what_is_not_kept_changes_nothing(world: SyncWorld) -> None:
    """Specification 25.27: the backup left, and joined again when it was over."""
    upstream, (storage,) = world.in_sync()
    upstream.send(NotifyAborted(tid(20)))
    assert aborts(storage) == [] and world.sync.in_sync


def test_a_rollback_answers_for_what_was_asked(world: SyncWorld) -> None:
    """Specification 25.57: else the upstream cluster would give up the backup."""
    upstream, (storage,) = world.in_sync()
    answer = prepare(upstream)
    upstream.send(NotifyAborted(tid(20)))
    assert answer.result() == AnswerPrepareBackup(tid(20))
    refuse(storage, ErrorCode.TID_NOT_FOUND, "it is not in progress")
    assert world.sync.in_sync


def test_a_node_that_got_the_rows_after_the_rollback_drops_them(world: SyncWorld) -> None:
    """Specification 25.57: they came from upstream meanwhile."""
    upstream, (storage,) = world.in_sync()
    prepare(upstream)
    upstream.send(NotifyAborted(tid(20)))
    assert aborts(storage) == [tid(20)]
    vote(storage)
    assert aborts(storage) == [tid(20), tid(20)]


def test_nodes_that_find_it_ended_do_not_end_the_membership(world: SyncWorld) -> None:
    """Specification 25.55, 25.57: NotifyAborted is on its way."""
    upstream, (storage,) = world.in_sync()
    answer = prepare(upstream)
    refuse(storage, ErrorCode.TID_NOT_FOUND, "it is not in progress")
    assert answer.done and world.sync.in_sync and not world.sync.keeps(tid(20))
    upstream.send(NotifyAborted(tid(20)))
    assert aborts(storage) == [tid(20)]


def test_a_commit_is_a_lock(world: SyncWorld) -> None:
    """Specification 25.27: nodes that have the rows answer at once."""
    upstream, (storage,) = world.in_sync()
    kept(upstream, storage)
    answer = world.lock(upstream, 24, 4)
    vote(storage)
    locks(storage)
    assert unlocks(storage) == [tid(20)] and aborts(storage) == []
    complete(24, storage)
    assert answer.done and not world.sync.keeps(tid(20))
    upstream.send(NotifyAborted(tid(20)))
    assert aborts(storage) == []


def test_what_nodes_remember_of_commits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Specification 25.59, 24.15: coordinators have outcomes forgotten upstream only."""
    monkeypatch.setattr(outcomes, "OUTCOMES_MAX", 1)
    world = KeepingWorld()
    upstream, (storage,) = world.in_sync()
    for number, xid in ((20, b"first"), (28, b"second")):
        mark_: SyncMark = (tid(number), xid, 5.0, b"", [0], [tid(4)], [])
        answer = upstream.ask(AskPrepareBackup(mark_))
        vote(storage)
        answer.result()
        world.lock(upstream, number + 4, 4)
        vote(storage)
        locks(storage)
        complete(number + 4, storage)
    assert storage.take(ForgetPrepared).xid == b"first" and not storage.has(ForgetPrepared)


def test_a_commit_that_is_given_up_leaves_it_prepared(world: SyncWorld) -> None:
    """Specification 25.52, 25.18: no node was asked to lock it."""
    upstream, (storage,) = world.in_sync()
    kept(upstream, storage)
    answer = world.lock(upstream, 24, 4)
    leave(world, upstream)
    assert error_of(answer).code is ErrorCode.INCOMPLETE_TRANSACTION
    vote(storage)
    assert world.sync.keeps(tid(20)) and aborts(storage) == []


# -- join ----------------------------------------------------------------------------------------


def test_the_first_lease_waits_for_what_is_prepared(world: SyncWorld) -> None:
    """Specification 25.26: nothing else happens that would make the backup look again."""
    upstream, (storage,) = world.backingup()
    complete(0, storage)
    world.host.advance(TICK_SECONDS)
    join(upstream, 0, mark(20, 4))
    assert not upstream.has(AskSyncLease)
    assert [m.mark for m in storage.received if type(m) is AskVoted] == [mark(20, 4)]
    vote(storage)
    upstream.answer(upstream.take(AskSyncLease), AnswerSyncLease())
    assert world.sync.in_sync and world.sync.keeps(tid(20))


def test_no_mark_is_stored_before_all_is_there_that_it_may_be_based_on(world: SyncWorld) -> None:
    """Specification 25.50: it would outlive a restart, and a take-over of a backup that is behind."""
    upstream, (storage,) = world.backingup()
    complete(0, storage)
    upstream.send(InvalidateObjects(tid(16), [tid(4)]))
    world.host.advance(TICK_SECONDS)
    join(upstream, 16, mark(20, 4))
    answer = prepare(upstream, 24, 8)
    assert not storage.has(AskVoted)
    storage.send(NotifyReplicationDone(0, tid(16)))
    complete(16, storage)
    assert [m.ttid for m in storage.received if type(m) is AskVoted] == [tid(20), tid(24)]
    vote(storage, storage)
    assert answer.done and upstream.has(AskSyncLease)


def test_what_no_node_was_asked_for_is_forgotten(world: SyncWorld) -> None:
    """Specification 25.52: it is listed again at the next time."""
    upstream, (storage,) = world.backingup()
    complete(0, storage)
    upstream.send(InvalidateObjects(tid(16), [tid(4)]))
    world.host.advance(TICK_SECONDS)
    join(upstream, 16, mark(20, 4))
    answer = world.lock(upstream, 24, 4)
    vote(storage)
    assert world.sync.keeps(tid(20))
    world.host.advance(JOIN_SECONDS + TICK_SECONDS)
    assert "not complete in time" in error_of(answer).message
    assert not world.sync.keeps(tid(20))
    assert aborts(storage) == [tid(20)], "the rows, which it got for the lock"


def test_what_is_kept_is_not_asked_again(world: SyncWorld) -> None:
    """Specification 25.26, 25.52."""
    upstream, (storage,) = world.in_sync()
    kept(upstream, storage)
    leave(world, upstream)
    world.host.advance(RETRY_SECONDS)
    join(upstream, 0, mark(20, 4))
    assert not storage.has(AskVoted)
    upstream.answer(upstream.take(AskSyncLease), AnswerSyncLease())
    assert world.sync.in_sync and world.sync.keeps(tid(20)) and aborts(storage) == []


def test_what_is_not_prepared_any_more_is_dropped_before_the_first_lease(world: SyncWorld) -> None:
    """Specification 25.26."""
    upstream, (storage,) = world.in_sync()
    kept(upstream, storage)
    leave(world, upstream)
    world.host.advance(RETRY_SECONDS)
    join(upstream, 0)
    assert aborts(storage) == [tid(20)] and upstream.has(AskSyncLease)


def test_what_ended_is_kept_until_its_commit_is_here(world: SyncWorld) -> None:
    """Specification 25.52: if upstream is lost now, it can still be committed here."""
    upstream, (storage,) = world.in_sync()
    kept(upstream, storage)
    leave(world, upstream)
    world.host.advance(RETRY_SECONDS - TICK_SECONDS)
    upstream.send(InvalidateObjects(tid(28), [tid(5)]))
    world.host.advance(TICK_SECONDS)
    join(upstream, 28)
    assert aborts(storage) == [] and not upstream.has(AskSyncLease)
    for partition in (0, 1):
        storage.send(NotifyReplicationDone(partition, tid(28)))
    complete(28, storage)
    assert aborts(storage) == [tid(20)] and upstream.has(AskSyncLease)


def test_what_is_listed_is_prepared_whatever_was_heard(world: SyncWorld) -> None:
    """Specification 25.52: the upstream cluster knows."""
    upstream, (storage,) = world.in_sync()
    kept(upstream, storage)
    leave(world, upstream)
    world.host.advance(RETRY_SECONDS - TICK_SECONDS)
    upstream.send(InvalidateObjects(tid(28), [tid(4)]))
    world.host.advance(TICK_SECONDS)
    join(upstream, 28, mark(20, 4))
    storage.send(NotifyReplicationDone(0, tid(28)))
    complete(28, storage)
    assert upstream.has(AskSyncLease) and world.sync.keeps(tid(20)) and aborts(storage) == []


# -- outside -------------------------------------------------------------------------------------


def test_what_is_kept_outlives_the_upstream_cluster(world: SyncWorld) -> None:
    """Specification 25.27, 25.52."""
    upstream, (storage,) = world.in_sync()
    kept(upstream, storage)
    upstream.lose()
    world.host.advance(100.0)
    assert world.sync.keeps(tid(20)) and aborts(storage) == []


def test_a_change_of_one_of_its_objects_drops_it_when_that_is_here(world: SyncWorld) -> None:
    """Specification 25.52: the object was locked as long as the transaction was prepared."""
    upstream, (storage,) = world.in_sync()
    kept(upstream, storage)
    leave(world, upstream)
    upstream.send(InvalidateObjects(tid(24), [tid(5)]))
    upstream.send(InvalidateObjects(tid(28), [tid(4)]))
    storage.send(NotifyReplicationDone(0, tid(28)))
    assert aborts(storage) == [], "partition 1 has not got the commit"
    storage.send(NotifyReplicationDone(1, tid(28)))
    complete(28, storage)
    assert aborts(storage) == [tid(20)] and not world.sync.keeps(tid(20))


# -- cells ---------------------------------------------------------------------------------------


@pytest.fixture
def growing() -> Growing:
    """S2 has replicated what was committed, and lacks transaction 20, which the backup keeps."""
    growing = Growing()
    answer = growing.upstream.ask(AskPrepareBackup(KEPT))
    vote(growing.one)
    answer.result()
    growing.commit(4)
    return growing


#: Transaction 20 of a cluster with one partition.
KEPT: SyncMark = (tid(20), XID, 5.0, b"", [0], [tid(7)], [])


def test_a_cell_becomes_readable_when_its_node_has_the_marks(growing: Growing) -> None:
    """Specification 25.56: one that a readable cell lacks is void at a take-over."""
    growing.replicated(4)
    growing.advance(TICK_SECONDS)
    assert growing.two.has(AskVoted) and not growing.readable
    vote(growing.two)
    assert growing.readable


def test_a_cell_that_is_about_to_be_readable_gets_what_is_prepared_meanwhile(
    growing: Growing,
) -> None:
    """Specification 25.56."""
    growing.replicated(4)
    growing.advance(TICK_SECONDS)
    answer = growing.upstream.ask(AskPrepareBackup((tid(24), b"more", 6.0, b"", [0], [tid(8)], [])))
    vote(growing.one, growing.two)
    assert answer.done, "the backup does not wait for cells that cannot be read"
    assert not growing.readable
    vote(growing.two)
    assert growing.readable


def test_a_node_gets_the_mark_for_its_readable_cells_first() -> None:
    """Specification 25.26, 25.56: a cell that is about to be readable makes no other one fail."""
    world = SyncWorld(partitions=2, replicas=1)
    upstream, (one, two) = world.in_sync(2)
    two.lose()
    complete(0, one, ptid=2)
    two = world.join_storage(2)
    two.ask(AskUnfinishedTransactions([0, 1])).result()
    two.send(NotifyReplicationDone(0, tid(0)))
    complete(0, one, two, ptid=3)
    world.locked(upstream, 5, one)
    complete(5, one, two, ptid=3)
    two.send(NotifyReplicationDone(1, tid(1)))
    answer = upstream.ask(AskPrepareBackup((tid(20), XID, 5.0, b"", [0, 1], [tid(7)], [])))
    assert [[*m.source_dict] for m in two.received if type(m) is AskVoted] == [[0]]
    vote(one, two)
    assert answer.done
    assert [[*m.source_dict] for m in two.received if type(m) is AskVoted] == [[1]]
    refuse(two, ErrorCode.INCOMPLETE_TRANSACTION, "no connection")
    assert world.sync.in_sync


def test_a_rollback_lets_the_cell_become_readable(growing: Growing) -> None:
    """Specification 25.56: nothing else happens that would make the backup look again."""
    growing.replicated(4)
    growing.upstream.send(NotifyAborted(tid(20)))
    assert growing.readable


def test_a_cell_that_cannot_get_a_mark_stays_out_of_date(growing: Growing) -> None:
    """Specification 25.56: the backup stays in sync, and asks again."""
    growing.replicated(4)
    growing.advance(TICK_SECONDS)
    refuse(growing.two, ErrorCode.INCOMPLETE_TRANSACTION, "no connection")
    assert not growing.readable and not growing.two.has(AskVoted)
    growing.advance(TICK_SECONDS)
    vote(growing.two)
    assert growing.readable and growing.world.sync.in_sync


def test_a_node_that_was_lost_gets_the_mark_again(growing: Growing) -> None:
    """Specification 25.56, 24.21: it drops all marks when it starts."""
    growing.replicated(4)
    growing.advance(TICK_SECONDS)
    vote(growing.two)
    growing.two.lose()
    confirm(growing.one, 4)
    growing.two = growing.world.join_storage(2)
    growing.two.ask(AskUnfinishedTransactions([0])).result()
    growing.replicated(4)
    growing.advance(TICK_SECONDS)
    assert not growing.readable
    vote(growing.two)
    assert growing.readable


def test_a_node_that_did_not_take_part_in_the_commit_drops_the_rows(growing: Growing) -> None:
    """Specification 25.57: its cell fetches what was committed."""
    growing.advance(TICK_SECONDS)
    growing.replicated(0)  # it is behind, and no lock is held back for it
    growing.advance(TICK_SECONDS)
    vote(growing.two)
    answer = growing.upstream.ask(AskLockBackup(tid(20), tid(24), [tid(7)]))
    vote(growing.one)
    locks(growing.one)
    assert aborts(growing.two) == [tid(20)] and aborts(growing.one) == []
    complete(24, growing.one, ptid=2)
    assert answer.done


def test_outside_a_cell_waits_for_a_mark_until_it_is_known_to_have_ended(
    growing: Growing,
) -> None:
    """Specification 25.55, 25.56."""
    leave(growing.world, growing.upstream)
    growing.replicated(4)
    growing.world.host.advance(TICK_SECONDS)
    refuse(growing.two, ErrorCode.INCOMPLETE_TRANSACTION, "no connection")
    assert not growing.readable
    growing.world.host.advance(TICK_SECONDS)
    refuse(growing.two, ErrorCode.TID_NOT_FOUND, "it is not in progress")
    assert aborts(growing.one) == [tid(20)] and not growing.world.sync.keeps(tid(20))
    growing.world.host.advance(TICK_SECONDS)
    assert growing.readable


def test_without_upstream_a_cell_waits_for_a_mark(growing: Growing) -> None:
    """Specification 25.56: the backup may take over, and nobody else has the transaction."""
    growing.upstream.lose()
    growing.replicated(4)
    growing.world.host.advance(100.0)
    assert not growing.readable and not growing.two.has(AskVoted)


# -- restart and take-over -----------------------------------------------------------------------


class Restart:
    """S1 and S2 of a backup that remember to be complete up to 12, and keep transaction 20."""

    def __init__(self, sync: bool = True, both: bool = True) -> None:
        self.world = world = KeepingWorld() if sync else BackupWorld()
        world.extra = KeepingWorld.extra
        row = AnswerPreparedTransactions([mark(20, 4, 5)], [])
        self.storages = [world.join_storage(nid) for nid in (1, 2)]
        for storage in self.storages:
            world.remember(storage, 8, [[(1, UP), (2, UP)]] * 4, tid(12))
        PreparedWorld.find(self.storages, [row, row if both else NOTHING], ltid=tid(12))
        assert world.master.cluster.state is ClusterState.STARTING_BACKUP

    def told(self) -> list[list[bytes]]:
        """Return what the nodes were told to keep, before they operate."""
        told: list[list[bytes]] = []
        for storage in self.storages:
            names = [type(message) for message in storage.received]
            told.append([])
            for message in storage.received[: names.index(StartOperation)]:
                if type(message) is NotifyPrepared:
                    told[-1] += message.ttid_list
        return told

    def follow(self) -> Remote:
        upstream, ptid = self.world.upstream(12), self.world.master.partitions.ptid
        for storage in self.storages:
            while storage.has(AskRecovery):
                storage.answer(storage.take(AskRecovery), AnswerRecovery(ptid, tid(12), None))
        self.world.host.advance(TICK_SECONDS)
        return upstream


class KeepingWorld(SyncWorld):
    """A new cluster whose storage nodes announce that they keep prepared transactions."""

    extra = {FEATURES: ["oids", FEATURE_OURS]}

    def verify(self, *storages: Remote, ltid: bytes | None = None) -> None:
        PreparedWorld.find(storages, [NOTHING] * len(storages), ltid=ltid)
        self.make_ready(*storages)


def test_what_all_nodes_have_is_kept_at_a_restart() -> None:
    """Specification 25.54, 24.19, 24.20."""
    restart = Restart()
    assert restart.told() == [[tid(20)], [tid(20)]]
    upstream = restart.follow()
    join(upstream, 12, mark(20, 4, 5))
    upstream.answer(upstream.take(AskSyncLease), AnswerSyncLease())
    assert not any(storage.has(AskVoted) for storage in restart.storages)
    upstream.send(NotifyAborted(tid(20)))
    assert [aborts(storage) for storage in restart.storages] == [[tid(20)], [tid(20)]]


def test_what_is_kept_at_a_restart_outlives_an_attempt_to_join() -> None:
    """Specification 25.52, 25.54."""
    restart = Restart()
    restart.follow().lose()
    assert isinstance(restart.world, KeepingWorld)
    assert restart.world.sync.keeps(tid(20))
    assert [aborts(storage) for storage in restart.storages] == [[], []]


def test_what_was_rolled_back_meanwhile_is_dropped_at_the_join() -> None:
    """Specification 25.26."""
    restart = Restart()
    upstream = restart.follow()
    join(upstream, 12)
    assert [aborts(storage) for storage in restart.storages] == [[tid(20)], [tid(20)]]
    assert upstream.has(AskSyncLease)


def test_what_a_node_lacks_is_not_kept_at_a_restart() -> None:
    """Specification 24.19: the upstream cluster was not answered."""
    restart = Restart(both=False)
    assert restart.told() == [[], []]
    upstream = restart.follow()
    join(upstream, 12, mark(20, 4, 5))
    assert all(storage.has(AskVoted) for storage in restart.storages)


def test_a_backup_that_is_not_synchronous_any_more_keeps_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Specification 25.58."""
    restart = Restart(sync=False)
    assert restart.told() == [[], []]
    assert "order-7" in caplog.text and "'sync' is not set" in caplog.text


def take_over(world: SyncWorld, storage: Remote, marks: AnswerPreparedTransactions) -> bytes:
    """Leave standby mode. Return where the database is cut."""
    world.admin().ask(SetClusterState(ClusterState.STOPPING_BACKUP))
    storage.take(StopOperation)
    world.remember(storage, 7, spread(1))
    cut = storage.take(Truncate).tid
    storage.answer(storage.take(AskRecovery), AnswerRecovery(7, None, cut))
    PreparedWorld.find([storage], [marks], ltid=cut)
    assert world.master.cluster.state is ClusterState.RUNNING
    return cut


def test_the_coordinator_commits_it_after_a_take_over() -> None:
    """Specification 25.27, 25.58: the upstream cluster is lost for ever."""
    world = KeepingWorld()
    upstream, (storage,) = world.in_sync()
    kept(upstream, storage)
    upstream.lose()
    take_over(world, storage, AnswerPreparedTransactions([mark(20, 4)], []))
    assert aborts(storage) == []
    assert storage.take(NotifyPrepared).ttid_list == [tid(20)]
    world.make_ready(storage)
    assert states(world) == [(XID, "prepared")]
    decision = decide(world.client(), True)
    assert lock_here(storage).ttid == tid(20)
    assert decision.done and unlocks(storage) == [tid(20)]


def test_an_answer_that_comes_after_the_operation_drops_nothing(world: SyncWorld) -> None:
    """Specification 25.27: verification decides what stays prepared."""
    upstream, (storage,) = world.in_sync()
    prepare(upstream)
    upstream.lose()
    world.admin().ask(SetClusterState(ClusterState.STOPPING_BACKUP))
    storage.take(StopOperation)
    vote(storage)
    assert aborts(storage) == []
