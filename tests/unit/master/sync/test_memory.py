"""Until when a synchronous backup was in sync, after its processes were started again (specification
25.68)."""

from __future__ import annotations

from typing import Any

from neo.master.sync.memory import WRITE_SECONDS
from neo.master.sync.synchronous import LEASE_INTERVAL, TICK_SECONDS
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    SYNC_UNTIL,
    AnswerSyncLease,
    AskSync,
    AskSyncLease,
    Error,
    NotifyInSync,
    SyncRow,
)
from tests.support.remote import Remote
from tests.unit.master.sync_world import SyncWorld

ANNOUNCED = ["oids", FEATURE_OURS]


class RememberingWorld(SyncWorld):
    """``until``: what storage nodes remember when they join."""

    def __init__(self, until: Any = None) -> None:
        self.extra = {FEATURES: ANNOUNCED} if until is None else {FEATURES: ANNOUNCED, SYNC_UNTIL: until}
        super().__init__()

    def own(self) -> SyncRow | None:
        own: SyncRow | None = self.admin().ask(AskSync()).result().own
        return own


def told(storage: Remote) -> list[float]:
    """Return, and forget, what a node was told."""
    found = [m.until for m in storage.received if type(m) is NotifyInSync]
    storage.received.clear()
    return found


def test_storage_nodes_are_told_once_a_second_and_at_the_end() -> None:
    world = RememberingWorld()
    upstream, (storage,) = world.backingup()
    world.join_upstream(upstream)
    assert told(storage) == [world.host.time()]
    begin = world.host.time()
    while world.host.time() - begin < 5 * WRITE_SECONDS:
        world.host.advance(TICK_SECONDS)
        while upstream.has(AskSyncLease):
            upstream.answer(upstream.take(AskSyncLease), AnswerSyncLease())
    assert 4 <= len(told(storage)) <= 5
    world.host.advance(LEASE_INTERVAL)
    asked = upstream.take(AskSyncLease)
    upstream.answer(asked, Error(ErrorCode.DENIED.value, "too slow"))
    assert told(storage) == [world.host.time()]


def test_a_lease_that_ended_before_is_told_with_its_end() -> None:
    """Specification 25.14: a promise beyond it would be wrong."""
    world = RememberingWorld()
    upstream, (storage,) = world.backingup()
    world.join_upstream(upstream)
    row = world.own()
    told(storage)
    limit = world.host.time() + 2.0
    world.host.advance(2.0 + 2 * TICK_SECONDS)
    assert row is not None and told(storage) == [limit]


def test_a_new_master_hears_it_from_storage_nodes() -> None:
    world = RememberingWorld()
    before = world.host.time() - 30.25
    world = RememberingWorld(before)
    world.backingup()
    name, state, since, _, seconds, reason = world.sync.row()
    assert (name, state) == ("up", "async") and reason
    assert since == before and abs((seconds or 0.0) - 30.25) < 0.01


def test_it_is_told_while_the_storage_nodes_are_not_all_there() -> None:
    """A backup that cannot start is asked before a take-over."""
    before = 1_800_000_000.0 - 30.25
    world = RememberingWorld(before)
    own = world.own()
    assert own is not None and own[4] is None
    assert own[5] == (
        "this cluster is RECOVERING: its storage nodes know whether it was in sync, and until when"
    )
    world.join_storage(1)
    own = world.own()
    assert own is not None and own[4] == world.host.time() - before
    assert own[5] == "this cluster is RECOVERING"


def test_a_cluster_that_serves_is_none() -> None:
    world = RememberingWorld()
    world.running(1)
    assert world.own() is None


def test_nonsense_is_not_remembered() -> None:
    world = RememberingWorld("yesterday")
    world.join_storage(1)
    assert world.master.backup.memory.until is None
