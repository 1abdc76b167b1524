"""A synchronous backup joins only when all nodes that it counts on answer (specification 25.66), and more
seldom when it leaves again and again (specification 25.61, 25.67)."""

from __future__ import annotations

from neo.master.flapping import FLAP_LOSSES
from neo.master.sync.roll_call import ROLL_SECONDS
from neo.master.sync.synchronous import LEASE_INTERVAL, RETRY_SECONDS, STEADY_SECONDS, TICK_SECONDS
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    AnswerSyncLease,
    AskJoinSync,
    AskSyncLease,
    Error,
    InvalidateObjects,
    Ping,
    Pong,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import tid
from tests.unit.master.sync_world import SyncWorld, complete

DENIED = Error(ErrorCode.DENIED.value, "a transaction was not locked in time")


def refuse_lease(world: SyncWorld, upstream: Remote) -> None:
    for _ in range(10):
        if not upstream.has(AskSyncLease):
            world.host.advance(TICK_SECONDS)
    upstream.answer(upstream.take(AskSyncLease), DENIED)


def seconds_to_join(world: SyncWorld, upstream: Remote) -> float:
    begin = world.host.monotonic()
    while not upstream.has(AskJoinSync):
        world.host.advance(TICK_SECONDS)
        assert world.host.monotonic() - begin < 60.0, "it never joins"
    return world.host.monotonic() - begin


def test_does_not_join_while_a_storage_node_stands_still() -> None:
    """Specification 25.66: the connection of a process that was stopped lives on."""
    world = SyncWorld()
    upstream, (one, two) = world.in_sync(2)
    two.lively = False
    refuse_lease(world, upstream)
    world.host.advance(10.0)
    assert not upstream.has(AskJoinSync)
    row = world.sync.row()
    assert row[1::4] == ("async", "S2 of this standby owes its master an answer")
    while two.has(Ping):
        two.answer(two.take(Ping), Pong())
    assert not upstream.has(AskJoinSync), "others may stand still by now"
    two.lively = True
    assert seconds_to_join(world, upstream) <= ROLL_SECONDS


def test_a_node_that_was_slow_and_is_behind_is_named_no_more() -> None:
    """Specification 25.66."""
    world = SyncWorld()
    upstream, (one, two) = world.in_sync(2)
    two.lively = False
    refuse_lease(world, upstream)
    upstream.send(InvalidateObjects(tid(16), [tid(1)]))
    world.host.advance(10.0)
    assert world.sync.row()[5].startswith("S2 ")
    two.lively = True
    two.answer(two.take(Ping), Pong())
    world.host.advance(10.0)
    assert "is not near the end" in world.sync.row()[5]


def test_a_lost_node_is_not_waited_for() -> None:
    """Specification 25.66: only nodes with readable cells count."""
    world = SyncWorld(replicas=1)
    upstream, (one, two) = world.in_sync(2)
    two.lively = False
    refuse_lease(world, upstream)
    world.host.advance(10.0)
    assert not upstream.has(AskJoinSync)
    two.lose()
    complete(0, one, ptid=2)
    assert seconds_to_join(world, upstream) <= ROLL_SECONDS


def test_waits_longer_each_time_that_it_was_in_sync_for_a_moment() -> None:
    """Specification 25.61: transactions wait each time that it is lost."""
    world = SyncWorld()
    upstream, (storage,) = world.in_sync()
    upstream.lively = True
    upstream.answer(upstream.take(Ping), Pong())
    pauses: list[float] = []
    for _ in range(5):
        refuse_lease(world, upstream)
        pauses.append(seconds_to_join(world, upstream))
        world.join_upstream(upstream)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0]
    for _ in range(round(STEADY_SECONDS / LEASE_INTERVAL) + 2):
        world.host.advance(LEASE_INTERVAL)
        while upstream.has(AskSyncLease):
            upstream.answer(upstream.take(AskSyncLease), AnswerSyncLease())
    refuse_lease(world, upstream)
    assert seconds_to_join(world, upstream) == RETRY_SECONDS


def test_says_that_it_flaps() -> None:
    """Specification 25.67."""
    world = SyncWorld()
    upstream, (storage,) = world.in_sync()
    for _ in range(FLAP_LOSSES):
        assert world.sync.row()[1::4] == ("sync", "")
        refuse_lease(world, upstream)
        seconds_to_join(world, upstream)
        world.join_upstream(upstream)
    state, reason = world.sync.row()[1::4]
    assert state == "sync"
    assert reason.startswith(f"it left {FLAP_LOSSES} times in ")
    assert reason.endswith(f" seconds, the last time because: {DENIED.message}")
