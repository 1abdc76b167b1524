"""How a synchronous backup joins, is in sync, and leaves (specification 25)."""

from __future__ import annotations

import pytest

from neo.master.commit.sync_backups import JOIN_SECONDS, LEASE_SECONDS
from neo.master.sync.synchronous import (
    HOLD_SECONDS,
    LEASE_INTERVAL,
    NEAR_SECONDS,
    RETRY_SECONDS,
    RETRY_SECONDS_MAX,
    TICK_SECONDS,
)
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AnswerJoinSync,
    AnswerSync,
    AnswerSyncLease,
    AnswerVoted,
    AskJoinSync,
    AskLastTransaction,
    AskLockInformation,
    AskSync,
    AskSyncLease,
    AskVoted,
    Error,
    InvalidateObjects,
    NotifyLeft,
    NotifyReplicationDone,
    NotifySynced,
    Ping,
    Replicate,
    RequestIdentification,
)
from neo.topology.masters import RETRY_SECONDS as CONNECT_SECONDS
from tests.support.remote import Remote, error_of
from tests.unit.master.backup_world import BackupWorld
from tests.unit.master.cluster import tid
from tests.unit.master.sync_world import Growing, SyncWorld, complete, locks, unlocks, vote


@pytest.fixture
def world() -> SyncWorld:
    return SyncWorld()


def refuse(upstream: Remote, kind: type[AskJoinSync] | type[AskSyncLease], text: str) -> None:
    upstream.answer(upstream.take(kind), Error(ErrorCode.DENIED.value, text))


# -- join ----------------------------------------------------------------------------------------


def test_a_backup_that_is_not_synchronous_announces_nothing() -> None:
    """Specification 25.29."""
    world = BackupWorld()
    world.running(1)
    world.master.backup.start(lambda error: None)
    world.master.flush()
    assert world.host.dialed[-1].take(RequestIdentification).extra[FEATURES] == [FEATURE_OURS]
    current = world.master.backup.current
    assert current is not None and current.synchronous is None


def test_joins_when_it_is_near_the_end(world: SyncWorld) -> None:
    """Specification 25.12: what was heard just now need not be complete."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(24), [tid(1)]))
    world.host.advance(TICK_SECONDS)
    assert upstream.has(AskJoinSync), "it was heard after the last check"


def test_does_not_join_while_it_is_behind(world: SyncWorld) -> None:
    """Specification 25.12."""
    upstream, (storage,) = world.backingup(last=20)
    world.host.advance(10 * TICK_SECONDS)
    assert not upstream.has(AskJoinSync) and world.state == "async"
    for partition in range(4):
        storage.send(NotifyReplicationDone(partition, tid(20)))
    complete(20, storage)
    world.host.advance(TICK_SECONDS)
    assert upstream.has(AskJoinSync)


def test_joins_though_it_follows_by_orders_a_moment_later_all_the_time(world: SyncWorld) -> None:
    """Specification 25.61: under load it never comes nearer."""
    upstream, (storage,) = world.backingup(last=8)
    number = 8
    while not upstream.has(AskJoinSync):
        number += 8
        assert number < 160, "it never joins"
        upstream.send(InvalidateObjects(tid(number), [tid(1)]))
        # What was heard of a second ago is complete.
        done = number - 8 * int(1 / TICK_SECONDS)
        if done > 0:
            for partition in range(4):
                storage.send(NotifyReplicationDone(partition, tid(done)))
            complete(done, storage)
        world.host.advance(TICK_SECONDS)
    assert number > 8 * NEAR_SECONDS / TICK_SECONDS / 2


def test_waits_longer_each_time_that_it_joined_in_vain(world: SyncWorld) -> None:
    """Specification 25.61: commits wait for it each time."""
    upstream, _ = world.backingup()
    pauses: list[float] = []
    for _ in range(5):
        begin = world.host.monotonic()
        while not upstream.has(AskJoinSync):
            world.host.advance(TICK_SECONDS)
            assert world.host.monotonic() - begin < 2 * RETRY_SECONDS_MAX
        pauses.append(world.host.monotonic() - begin)
        upstream.answer(upstream.take(AskJoinSync), AnswerJoinSync(tid(16), []))
        while world.state == "joining":
            world.host.advance(TICK_SECONDS)
    assert pauses[1:] == [1.0, 2.0, 4.0, 8.0]


def test_prepares_at_once_and_locks_when_all_cells_are_complete(world: SyncWorld) -> None:
    """Specification 25.13."""
    upstream, (storage,) = world.backingup()
    complete(0, storage)
    upstream.send(InvalidateObjects(tid(16), [tid(1)]))
    world.host.advance(TICK_SECONDS)
    upstream.answer(upstream.take(AskJoinSync), AnswerJoinSync(tid(16), []))
    answer = world.lock(upstream, 24, 1)
    vote(storage)
    assert not storage.has(AskLockInformation) and not upstream.has(AskSyncLease)
    assert world.state == "joining"
    for partition in (0, 1):
        storage.send(NotifyReplicationDone(partition, tid(16)))
    complete(16, storage)
    assert upstream.has(AskSyncLease)
    locks(storage)
    complete(24, storage)
    assert answer.done and unlocks(storage) == [tid(20)]


def test_gives_up_to_join_if_cells_are_not_complete_in_time(world: SyncWorld) -> None:
    """Specification 25.13: the upstream cluster goes on without it."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(16), [tid(1)]))
    world.host.advance(TICK_SECONDS)
    upstream.answer(upstream.take(AskJoinSync), AnswerJoinSync(tid(16), []))
    answer = world.lock(upstream, 24, 1)
    world.host.advance(JOIN_SECONDS + TICK_SECONDS)
    assert "not complete in time" in error_of(answer).message
    assert world.state == "async"


def test_a_refusal_is_said_and_asked_again_later(world: SyncWorld) -> None:
    """Specification 25.12, 25.18."""
    upstream, (storage,) = world.backingup()
    world.host.advance(TICK_SECONDS)
    refuse(upstream, AskJoinSync, "backup 'test' is switched off")
    assert world.sync.row()[1::4] == ("async", "backup 'test' is switched off")
    world.host.advance(RETRY_SECONDS - 2 * TICK_SECONDS)
    assert not upstream.has(AskJoinSync)
    world.host.advance(2 * TICK_SECONDS)
    assert upstream.has(AskJoinSync)


def test_does_not_join_an_upstream_that_does_not_know_how(world: SyncWorld) -> None:
    """Specification 21.2."""
    world.knows = False
    upstream, _ = world.backingup()
    world.host.advance(10 * TICK_SECONDS)
    assert not upstream.has(AskJoinSync) and not upstream.has(NotifySynced)
    assert "update it" in world.sync.row()[5]


def test_does_not_join_with_storage_nodes_that_do_not_know_how(world: SyncWorld) -> None:
    """Specification 21.2."""
    world.extra = {"features": ["oids"]}
    upstream, _ = world.backingup()
    world.host.advance(10 * TICK_SECONDS)
    assert not upstream.has(AskJoinSync)
    assert world.sync.row()[5] == "S1 must be updated to take part"


# -- lease ---------------------------------------------------------------------------------------


def test_a_lease_counts_from_when_it_was_asked(world: SyncWorld) -> None:
    """Specification 25.14."""
    upstream, _ = world.in_sync()
    world.host.advance(LEASE_INTERVAL)
    asked = upstream.take(AskSyncLease)
    world.host.advance(LEASE_INTERVAL)
    upstream.answer(asked, AnswerSyncLease())
    world.host.advance(LEASE_SECONDS - LEASE_INTERVAL - 0.01)
    assert world.sync.in_sync
    world.host.advance(0.01)
    assert not world.sync.in_sync and world.state == "lost"


def test_leases_are_asked_as_long_as_they_are_answered(world: SyncWorld) -> None:
    """Specification 25.14."""
    upstream, _ = world.in_sync()
    for _ in range(20):
        world.host.advance(LEASE_INTERVAL)
        upstream.answer(upstream.take(AskSyncLease), AnswerSyncLease())
    assert world.sync.in_sync and not upstream.has(AskSyncLease)
    assert world.sync.row()[4] == 0.0


def test_a_lease_that_is_over_is_no_lease_though_no_timer_came(world: SyncWorld) -> None:
    """Specification 25.14, 25.28: as after a suspension of the process."""
    world.in_sync()
    world.host.elapsed += LEASE_SECONDS
    assert not world.sync.in_sync
    world.host.elapsed += 3.0
    assert world.sync.row()[1] == "lost" and world.sync.row()[4] == pytest.approx(3.0)


def test_a_refused_lease_ends_the_membership_until_the_backup_joins_again(
    world: SyncWorld,
) -> None:
    """Specification 25.15, 25.18."""
    upstream, (storage,) = world.in_sync()
    answer = world.lock(upstream, 24, 1)
    world.host.advance(LEASE_INTERVAL)
    refuse(upstream, AskSyncLease, "the backup was too slow")
    assert not world.sync.in_sync
    assert error_of(answer).message == "the backup was too slow"
    world.host.advance(RETRY_SECONDS - TICK_SECONDS)
    assert not upstream.has(AskJoinSync)
    world.host.advance(TICK_SECONDS)
    upstream.answer(upstream.take(AskJoinSync), AnswerJoinSync(tid(16), []))
    assert world.state == "joining"


def test_is_not_joining_before_the_upstream_cluster_has_answered(world: SyncWorld) -> None:
    """Specification 25.45: the connection may be dead, which is noticed after many seconds."""
    upstream, _ = world.backingup()
    world.host.advance(TICK_SECONDS)
    assert upstream.has(AskJoinSync)
    world.host.advance(20.0)
    reason = "it asked to join, and the upstream cluster has not answered yet"
    assert world.sync.row()[1::4] == ("async", reason)
    upstream.answer(upstream.take(AskJoinSync), AnswerJoinSync(tid(16), []))
    assert world.sync.row()[1::4] == ("joining", "it has just joined")


def test_an_answer_to_an_earlier_question_is_no_lease(world: SyncWorld) -> None:
    """Specification 25.15: it was asked before the backup left."""
    upstream, (storage,) = world.in_sync()
    world.host.advance(LEASE_INTERVAL)
    late = upstream.take(AskSyncLease)
    world.host.advance(LEASE_SECONDS)
    assert not world.sync.in_sync
    upstream.answer(late, AnswerSyncLease())
    assert not world.sync.in_sync


def test_nodes_end_their_subscriptions_when_the_backup_leaves(world: SyncWorld) -> None:
    """Specification 25.18: clients of the upstream cluster do not wait for a slow backup any longer."""
    upstream, (storage,) = world.in_sync()
    world.host.advance(LEASE_INTERVAL)
    refusal = Error(ErrorCode.DENIED.value, "it is too slow")
    upstream.answer(upstream.take(AskSyncLease), refusal)
    assert storage.has(NotifyLeft)
    storage.received.clear()
    world.host.advance(RETRY_SECONDS)
    upstream.answer(upstream.take(AskJoinSync), refusal)
    assert not storage.has(NotifyLeft), "nothing was subscribed since"


def test_no_lease_is_held_when_a_transaction_is_refused(world: SyncWorld) -> None:
    """Specification 25.40."""
    upstream, (storage,) = world.in_sync()
    held = []
    answer = world.lock(upstream, 24, 1)
    answer.then(lambda _: held.append(world.sync.in_sync))
    question = storage.take(AskVoted)
    storage.answer(question, Error(ErrorCode.INCOMPLETE_TRANSACTION.value, "no"))
    assert held == [False]


def test_tells_since_when_it_is_not_in_sync(world: SyncWorld) -> None:
    """Specification 25.28."""
    upstream, (storage,) = world.in_sync()
    began = world.host.time()
    assert world.sync.row() == ("up", "sync", began, tid(0), 0.0, "")
    world.host.advance(0.1)
    upstream.lose()
    world.host.advance(0.5)
    name, state, since, complete_tid, seconds, reason = world.sync.row()
    assert (name, state, complete_tid) == ("up", "lost", tid(0))
    assert since == pytest.approx(began + 0.1) and seconds == pytest.approx(0.5)
    assert reason == "the upstream cluster is lost: lost"
    world.host.advance(LEASE_SECONDS)
    assert world.sync.row()[1:3] == ("async", since)


def test_joining_again_is_not_the_time_since_when_it_is_not_in_sync(world: SyncWorld) -> None:
    """Specification 25.47."""
    upstream, _ = world.in_sync()
    world.host.advance(LEASE_INTERVAL)
    refuse(upstream, AskSyncLease, "the backup was too slow")
    since = world.sync.row()[2]
    assert since == world.host.time()
    world.host.advance(RETRY_SECONDS)
    refuse(upstream, AskJoinSync, "not yet")
    world.host.advance(RETRY_SECONDS)
    assert world.sync.row()[2] == since
    upstream.answer(upstream.take(AskJoinSync), AnswerJoinSync(tid(0), []))
    upstream.answer(upstream.take(AskSyncLease), AnswerSyncLease())
    assert world.sync.row()[1:3] == ("sync", world.host.time())


def test_the_master_tells_operators_how_it_follows(world: SyncWorld) -> None:
    """Specification 25.28, 25.45."""
    upstream, _ = world.in_sync()
    answer = world.admin().ask(AskSync()).result()
    assert answer == AnswerSync([], world.sync.row()) and answer.own[:2] == ("up", "sync")
    upstream.lose()
    assert world.admin().ask(AskSync()).result().own[1] == "lost"


def test_a_backup_that_is_not_synchronous_tells_nothing_of_itself() -> None:
    """Specification 25.28: nor does a synchronous one outside backup mode."""
    outside, other = SyncWorld(), BackupWorld()
    outside.running(1)
    other.backingup()
    for world in (outside, other):
        assert world.admin().ask(AskSync()).result() == AnswerSync([], None)


# -- the connection ------------------------------------------------------------------------------


def test_says_what_is_complete_before_it_compares_histories(world: SyncWorld) -> None:
    """Specification 25.22, 25.43: the upstream cluster counts what it waits for as locked here."""
    upstream, (storage,) = world.in_sync()
    world.locked(upstream, 24, storage)
    complete(24, storage)
    upstream.lose()
    world.host.advance(CONNECT_SECONDS)
    again = world.upstream(24)
    assert again.take(NotifySynced) == NotifySynced(tid(24))
    assert not again.closed


def test_what_is_being_locked_is_durable_before_it_says_what_is_complete(
    world: SyncWorld,
) -> None:
    """Specification 25.43."""
    upstream, (storage,) = world.in_sync()
    world.lock(upstream, 24, 1)
    vote(storage)
    upstream.lose()
    world.host.advance(CONNECT_SECONDS)
    with pytest.raises(AssertionError, match="AskLastTransaction"):
        world.upstream(24)
    again = world.host.dialed[-1]
    assert not again.has(NotifySynced) and not again.has(Ping)
    locks(storage)
    world.host.advance(TICK_SECONDS)
    assert not again.has(NotifySynced)
    complete(24, storage)
    world.host.advance(TICK_SECONDS)
    assert again.take(NotifySynced) == NotifySynced(tid(24)) and again.has(AskLastTransaction)


# -- cells ---------------------------------------------------------------------------------------


def test_a_cell_becomes_readable_when_it_has_all_that_was_locked() -> None:
    """Specification 25.21, 25.44: not when it has what readers see, which may be less."""
    growing = Growing()
    growing.commit(4)
    growing.world.locked(growing.upstream, 8, growing.one)
    growing.replicated(4)
    assert not growing.readable
    complete(8, growing.one, ptid=2)
    assert growing.two.take(Replicate) == Replicate(tid(8), "", {0: ("127.0.0.1", 9101)})
    growing.replicated(8)
    assert growing.readable


def test_outside_a_cell_becomes_readable_when_it_has_all_that_was_locked() -> None:
    """Specification 25.44: it may be the last one when this cluster takes over."""
    growing = Growing()
    growing.commit(4)
    growing.upstream.lose()
    growing.replicated(3)
    assert not growing.readable
    growing.replicated(4)
    assert growing.readable


def test_no_cell_becomes_readable_between_a_lock_and_its_unlock() -> None:
    """Specification 25.21: it would miss the transaction."""
    growing = Growing()
    growing.commit(4)
    growing.world.lock(growing.upstream, 8, 1)
    vote(growing.one)
    growing.replicated(4)
    assert not growing.readable
    locks(growing.one)
    complete(8, growing.one, ptid=2)
    growing.replicated(8)
    assert growing.readable


def test_a_cell_that_became_readable_takes_part_in_what_is_not_locked() -> None:
    """Specification 25.3, 25.21."""
    growing = Growing()
    growing.commit(4)
    growing.world.lock(growing.upstream, 8, 1)
    growing.replicated(4)
    assert growing.readable
    vote(growing.one)
    assert not growing.one.has(AskLockInformation)
    vote(growing.two)
    assert growing.one.has(AskLockInformation) and growing.two.has(AskLockInformation)


def test_a_cell_that_became_readable_while_its_node_was_asked_takes_part() -> None:
    """Specification 25.3, 25.10: the node is asked again when it has answered for its other cells."""
    growing = Growing(partitions=2)
    growing.replicated(4)
    assert growing.readable
    growing.world.lock(growing.upstream, 8, 1)
    first = growing.two.take(AskVoted)
    assert list(first.source_dict) == [0]
    growing.two.send(NotifyReplicationDone(1, tid(4)))
    vote(growing.one)
    assert not growing.two.has(AskVoted)
    growing.two.answer(first, AnswerVoted(first.ttid))
    assert not growing.one.has(AskLockInformation)
    second = growing.two.take(AskVoted)
    assert (list(second.source_dict), second.oid_list) == ([1], [tid(1)])
    growing.two.answer(second, AnswerVoted(second.ttid))
    assert growing.one.has(AskLockInformation) and growing.two.has(AskLockInformation)


def test_locks_are_held_back_for_a_cell_that_is_near_the_end() -> None:
    """Specification 25.21, 25.41: under load it would never come to the end otherwise."""
    growing = Growing()
    growing.commit(4)
    growing.advance(TICK_SECONDS)
    growing.commit(8)
    growing.replicated(4)
    growing.advance(TICK_SECONDS)
    answer = growing.world.lock(growing.upstream, 12, 1)
    vote(growing.one)
    assert not growing.one.has(AskLockInformation)
    growing.replicated(8)
    assert growing.readable
    vote(growing.two)
    complete(8, growing.one, growing.two, ptid=3)
    locks(growing.one, growing.two)
    complete(12, growing.one, growing.two, ptid=3)
    assert answer.done


def test_locks_go_on_if_the_cell_does_not_come_to_its_end_in_time() -> None:
    """Specification 25.41: the upstream cluster must not give up the backup for it."""
    growing = Growing()
    growing.commit(4)
    growing.advance(TICK_SECONDS)
    growing.commit(8)
    growing.replicated(4)
    growing.advance(TICK_SECONDS)
    growing.world.lock(growing.upstream, 12, 1)
    vote(growing.one)
    growing.advance(HOLD_SECONDS - TICK_SECONDS)
    assert not growing.one.has(AskLockInformation)
    growing.advance(TICK_SECONDS)
    assert growing.one.has(AskLockInformation) and not growing.readable
    locks(growing.one)
    growing.world.lock(growing.upstream, 16, 1)
    vote(growing.one)
    assert growing.one.has(AskLockInformation), "they are not held back again at once"


def test_a_cell_that_is_far_behind_holds_nothing_back() -> None:
    """Specification 25.21."""
    growing = Growing()
    growing.commit(4)
    growing.commit(8)
    growing.advance(TICK_SECONDS)
    growing.replicated(4)
    growing.advance(TICK_SECONDS)
    growing.world.lock(growing.upstream, 12, 1)
    vote(growing.one)
    assert growing.one.has(AskLockInformation)


def test_leaves_when_a_cell_becomes_readable_on_a_node_that_does_not_know_how() -> None:
    """Specification 21.2."""
    growing = Growing()
    node = growing.world.master.nodes.get(2)
    assert node is not None
    node.features = frozenset({"oids"})
    growing.commit(4)
    growing.replicated(4)
    assert growing.readable and not growing.world.sync.in_sync
    assert growing.world.sync.row()[5] == "S2 must be updated to take part"
