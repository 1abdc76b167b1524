from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from unittest.mock import patch

import pytest
from ZODB.mvccadapter import MVCCAdapter

from neo.client.host.system import System
from neo.client.read.cache import Cache, Loaded
from neo.client.read.invalidations import Invalidations
from neo.protocol.ids import p64, u64
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.peers import in_threads

#: A connection to a master.
HERE = "here"


class Storage:
    """The part of a storage that ZODB's adapter needs."""

    def __init__(self) -> None:
        self.invalidations = Invalidations(Cache(10_000), System(1.0))

    def registerDB(self, db: object) -> None:
        self.invalidations.db = db

    def lastTransaction(self) -> bytes:
        return self.invalidations.last_transaction()


def joined(*tids: int) -> Invalidations:
    """Return the invalidations of a client that joined the cluster at these transactions."""
    invalidations = Storage().invalidations
    for tid in tids:
        invalidations.joined(p64(tid), HERE)
    return invalidations


def late(storage: Storage, tid: int, callback: Callable[[], object] = int) -> None:
    """The outcome of a transaction is known after newer ones were applied (specification 16.7)."""

    def finished(tid: bytes) -> None:
        storage.invalidations.distribute(tid, [p64(1)])
        callback()

    storage.invalidations.committed(p64(tid), {}, finished)


def test_connections_that_begin_during_a_reconnection_are_never_stale() -> None:
    """Each thread is a connection with a cache of one object, whose revisions are the tids.

    Between its transactions, others are committed and their invalidations lost; the master announces
    the last one. Or the outcome of an earlier one is known late. A connection may be behind, but must
    not have the old revision in the new view.
    """
    storage = Storage()
    storage.invalidations.joined(p64(1), HERE)
    adapter = MVCCAdapter(storage)
    stop = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def reconnect() -> None:
        chance = random.Random(1)
        for tid in range(2, 3000):
            if chance.random() < 0.5:
                storage.invalidations.joined(p64(tid), HERE)
            else:
                storage.invalidations.invalidate(p64(tid), [p64(0)], HERE)
                late(storage, tid - 1)
        stop.set()

    def connection() -> None:
        instance = adapter.new_instance()
        known: int | None = None
        while not stop.is_set():
            changed = instance.poll_invalidations()
            if changed is None or p64(0) in changed:
                known = None
            view = u64(instance._start) - 1
            assert known is None or known == view
            known = view

    try:
        assert in_threads(reconnect, connection, connection, connection) == [None] * 4
    finally:
        sys.setswitchinterval(interval)


def test_what_takes_effect_is_complete_before_it_is_the_last_transaction() -> None:
    """Specification 16.7, 16.8."""
    invalidations = joined(1)
    seen: list[bytes] = []
    invalidations.committed(p64(5), {}, lambda tid: seen.extend([tid, invalidations.last_tid]))
    assert seen == [p64(5), p64(1)]
    assert invalidations.last_tid == p64(5)


def test_a_failing_callback_does_not_hide_the_transaction() -> None:
    invalidations = Storage().invalidations

    def fail(tid: bytes) -> None:
        raise KeyError(tid)

    with pytest.raises(KeyError):
        invalidations.committed(p64(5), {}, fail)
    assert invalidations.last_tid == p64(5)


def test_a_transaction_that_was_told_of_by_another_message_does_not_take_effect_again() -> None:
    """tpc_finish lost the master, or takes its answer late: the next master announced an earlier
    transaction. A load that began in between has its data, which stays current until replaced."""
    invalidations = joined(1, 5)
    cache = invalidations.cache
    load = cache.load_begins(p64(0))
    called: list[bytes] = []
    invalidations.committed(p64(5), {p64(0): None}, called.append)
    assert called == [p64(5)]
    assert cache.load_ends(p64(0), load, Loaded(b"", p64(5), None)) == (b"", p64(5), None)
    invalidations.invalidate(p64(7), [p64(0)], HERE)
    assert cache.load_before(p64(0), p64(8)) is None
    assert cache.load_before(p64(0), p64(7)) == (b"", p64(5), p64(7))


def test_a_late_outcome_does_not_hide_what_took_effect_before() -> None:
    """A connection that begins had read ``lastTransaction()`` before the newer transaction was applied,
    and takes its invalidations with an older view."""
    storage = Storage()
    storage.invalidations.joined(p64(2), HERE)
    adapter = MVCCAdapter(storage)
    instance = adapter.new_instance()
    instance.poll_invalidations()
    storage.invalidations.invalidate(p64(3), [p64(0)], HERE)
    with patch.object(storage, "lastTransaction", lambda: p64(2)):
        late(storage, 2, instance.poll_invalidations)
    assert u64(instance._start) - 1 == 2
    changed = instance.poll_invalidations()
    assert u64(instance._start) - 1 == 3
    assert changed is None or p64(0) in changed


def test_an_invalidation_that_is_behind_a_reconnection_does_not_take_effect_again() -> None:
    """A thread has read the transaction from the old connection, and another thread joined the master
    again."""
    invalidations = joined(1, 5)
    cache = invalidations.cache
    load = cache.load_begins(p64(0))
    invalidations.invalidate(p64(5), [p64(0)], HERE)
    assert cache.load_ends(p64(0), load, Loaded(b"", p64(5), None)) == (b"", p64(5), None)


def test_what_a_connection_still_says_when_another_one_was_joined_is_over() -> None:
    """The database was truncated (specification 16.2): later transactions never existed. Connections
    of ZODB drop their data, that of this client's own transaction included."""
    storage = Storage()
    invalidations = storage.invalidations
    adapter = MVCCAdapter(storage)
    instance = adapter.new_instance()
    invalidations.joined(p64(5), "before")
    instance.poll_invalidations()
    invalidations.joined(p64(3), HERE)
    invalidations.invalidate(p64(7), [p64(0)], "before")
    assert invalidations.last_tid == p64(3)
    assert instance.poll_invalidations() is None and u64(instance._start) - 1 == 3

    called: list[bytes] = []

    def callback(tid: bytes) -> None:
        called.append(tid)
        invalidations.distribute(tid, [p64(0)])

    invalidations.committed(p64(6), {p64(0): b"data"}, callback, "before")
    assert called == [p64(6)] and invalidations.last_tid == p64(3)
    assert len(invalidations.cache) == 0
    assert instance.poll_invalidations() is None and u64(instance._start) - 1 == 3


def test_a_callback_that_joins_the_cluster_again_does_not_bring_it_back() -> None:
    """The callback may load, and so dial (specification 16.7)."""
    invalidations = Storage().invalidations
    invalidations.joined(p64(1), "before")
    invalidations.committed(p64(5), {}, lambda tid: invalidations.joined(p64(8), HERE), "before")
    assert invalidations.last_tid == p64(8)
    invalidations.joined(p64(8), "before")
    invalidations.committed(p64(9), {}, lambda tid: invalidations.joined(p64(2), HERE), "before")
    assert invalidations.last_tid == p64(2)


def test_a_transaction_of_no_connection_is_distributed_to_all_of_them() -> None:
    storage = Storage()
    storage.invalidations.joined(p64(1), HERE)
    instance = MVCCAdapter(storage).new_instance()
    instance.poll_invalidations()
    storage.invalidations.committed(
        p64(5), {}, lambda tid: storage.invalidations.distribute(tid, [p64(3)])
    )
    assert instance.poll_invalidations() == [p64(3)]


def test_a_view_of_the_future_waits_for_the_transaction_that_takes_effect() -> None:
    """Specification 16.8."""
    invalidations = joined(1)
    started, finish = threading.Event(), threading.Event()

    def callback(tid: bytes) -> None:
        started.set()
        assert finish.wait(PATIENCE_SECONDS)

    def commit() -> None:
        invalidations.committed(p64(5), {}, callback)

    def load() -> bytes:
        assert started.wait(PATIENCE_SECONDS)
        threading.Timer(0.05, finish.set).start()
        assert invalidations.view(p64(2)) == p64(2)
        return invalidations.view(p64(99))

    assert in_threads(commit, load) == [None, p64(6)]
