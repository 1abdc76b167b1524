from __future__ import annotations

import random
import threading

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from neo.client.read.cache import (
    LARGEST_PART,
    OVERHEAD_BYTES,
    REVISIONS_MAX,
    Cache,
    Load,
    Loaded,
    Record,
)
from neo.protocol.ids import p64, u64
from tests.unit.client.peers import in_threads

OID = p64(1)


def put(cache: Cache, oid: bytes, tid: int, next_tid: int | None, data: bytes = b"x") -> None:
    loaded = Loaded(data, p64(tid), None if next_tid is None else p64(next_tid))
    cache.load_ends(oid, cache.load_begins(oid), loaded)


def test_a_revision_is_found_for_the_views_in_which_it_was_current() -> None:
    """Specification 16.9."""
    cache = Cache(10_000)
    put(cache, OID, 5, 8, b"old")
    put(cache, OID, 8, None, b"new")
    assert cache.load_before(OID, p64(5)) is None
    assert cache.load_before(OID, p64(6)) == (b"old", p64(5), p64(8))
    assert cache.load_before(OID, p64(8)) == (b"old", p64(5), p64(8))
    assert cache.load_before(OID, p64(9)) == (b"new", p64(8), None)
    assert cache.load_at(OID, p64(5)) == b"old"
    assert cache.load_at(OID, p64(6)) is None


def test_a_view_between_two_known_revisions_is_not_invented() -> None:
    """Specification 16.9."""
    cache = Cache(10_000)
    put(cache, OID, 2, 3)
    put(cache, OID, 8, None)
    assert cache.load_before(OID, p64(5)) is None


def test_an_invalidation_closes_the_current_revision() -> None:
    """Specification 16.11."""
    cache = Cache(10_000)
    put(cache, OID, 5, None)
    cache.invalidate(p64(9), [OID, p64(2)])
    assert cache.load_before(OID, p64(9)) == (b"x", p64(5), p64(9))
    assert cache.load_before(OID, p64(10)) is None


def test_an_invalidation_during_a_load_closes_what_it_brings() -> None:
    """Specification 16.10."""
    cache = Cache(10_000)
    load = cache.load_begins(OID)
    cache.invalidate(p64(9), [OID])
    cache.invalidate(p64(11), [OID])
    kept = cache.load_ends(OID, load, Loaded(b"x", p64(5), None))
    assert kept == (b"x", p64(5), p64(9))
    assert cache.load_before(OID, p64(10)) is None
    assert cache.load_before(OID, p64(9)) == (b"x", p64(5), p64(9))


def test_two_loads_of_one_object_are_told_apart() -> None:
    cache = Cache(10_000)
    first = cache.load_begins(OID)
    cache.invalidate(p64(9), [OID])
    second = cache.load_begins(OID)
    assert cache.load_ends(OID, second, Loaded(b"new", p64(9), None)) == (b"new", p64(9), None)
    kept = cache.load_ends(OID, first, Loaded(b"old", p64(5), None))
    assert kept == (b"old", p64(5), p64(9))
    assert cache.load_before(OID, p64(10)) == (b"new", p64(9), None)


def test_a_load_during_a_reconnection_leaves_no_revision() -> None:
    """Specification 16.2. The answer may be of a history that was truncated meanwhile."""
    for next_tid in (None, p64(7)):
        cache = Cache(10_000)
        put(cache, OID, 3, 5, b"old")
        load = cache.load_begins(OID)
        cache.clear()
        loaded = Loaded(b"x", p64(5), next_tid)
        assert cache.load_ends(OID, load, loaded) == loaded
        assert (len(cache), cache.size) == (0, 0)


def test_reconnection_keeps_nothing() -> None:
    """Specification 16.2."""
    cache = Cache(10_000)
    put(cache, OID, 3, 5)
    put(cache, OID, 5, None)
    cache.clear()
    assert cache.load_before(OID, p64(4)) is None
    assert (len(cache), cache.size) == (0, 0)


def test_kept_records_that_are_invalidated_meanwhile_are_not_restored() -> None:
    """Specification 16.48."""
    cache = Cache(10_000)
    cache.restoring()
    cache.invalidate(p64(9), [OID])
    old = Record(OID, p64(3), p64(5), b"old")
    assert cache.restore([Record(OID, p64(5), None, b"x"), old]) == 1
    assert cache.load_before(OID, p64(10)) is None
    assert cache.load_before(OID, p64(5)) == (b"old", p64(3), p64(5))


def test_nothing_is_restored_into_a_cache_that_was_emptied_meanwhile() -> None:
    """Specification 16.48."""
    cache = Cache(10_000)
    cache.restoring()
    cache.clear()
    assert cache.restore([Record(OID, p64(5), None, b"x")]) == 0
    assert len(cache) == 0


def test_our_commit_replaces_the_current_revision() -> None:
    """Specification 16.11."""
    cache = Cache(10_000)
    put(cache, OID, 5, None, b"old")
    cache.committed(p64(7), {OID: b"new", p64(2): None})
    assert cache.load_before(OID, p64(8)) == (b"new", p64(7), None)
    assert cache.load_before(OID, p64(7)) == (b"old", p64(5), p64(7))
    cache.committed(p64(7), {OID: None})
    assert cache.load_before(OID, p64(8)) == (b"new", p64(7), None)


def test_the_size_never_exceeds_the_capacity() -> None:
    """Specification 16.12."""
    cache = Cache(20 * OVERHEAD_BYTES)
    for n in range(1000):
        put(cache, p64(n % 37), n, None if n % 3 else n + 1, bytes(n % 200))
        assert cache.size <= cache.capacity


def test_an_object_too_big_for_the_cache_drives_nothing_out() -> None:
    cache = Cache(100_000)
    put(cache, OID, 1, None)
    put(cache, p64(2), 1, None, bytes(int(100_000 * LARGEST_PART)))
    assert cache.load_before(p64(2), p64(2)) is None
    assert cache.load_before(OID, p64(2)) is not None


def test_without_capacity_nothing_is_kept() -> None:
    cache = Cache(0)
    put(cache, OID, 1, None)
    assert len(cache) == 0


def test_an_object_that_always_changes_keeps_its_newest_revisions_only() -> None:
    """Each commit of the object walks over its revisions, however large the cache is
    (specification 16.12)."""
    cache = Cache(1 << 20)
    for n in range(1, 1000):
        cache.committed(p64(n), {OID: b"data %d" % n})
    oldest = 1000 - REVISIONS_MAX
    assert len(cache) == REVISIONS_MAX == len(cache._small) + len(cache._main)
    assert cache.size == REVISIONS_MAX * (OVERHEAD_BYTES + len(b"data 999"))
    assert cache.load_before(OID, p64(1000)) == Loaded(b"data 999", p64(999), None)
    found = cache.load_before(OID, p64(oldest + 1))
    assert found == Loaded(b"data %d" % oldest, p64(oldest), p64(oldest + 1))
    assert cache.load_before(OID, p64(oldest)) is None
    # Storage nodes serve an even older view, and it evicts nothing.
    load = cache.load_begins(OID)
    cache.load_ends(OID, load, Loaded(b"old", p64(3), p64(4)))
    assert cache.load_before(OID, p64(4)) is None
    assert cache.load_before(OID, p64(oldest + 1)) == found


def test_objects_in_use_survive_a_scan() -> None:
    cache = Cache(100 * OVERHEAD_BYTES)
    used = [p64(n) for n in range(20)]
    for _ in range(3):
        for oid in used:
            if cache.load_before(oid, p64(2)) is None:
                put(cache, oid, 1, None)
    for n in range(1000, 2000):
        put(cache, p64(n), 1, None)
        for oid in used:
            cache.load_before(oid, p64(2))
    assert all(cache.load_before(oid, p64(2)) for oid in used)


def test_memory_of_queues_is_bounded_when_revisions_are_dropped() -> None:
    cache = Cache(50 * OVERHEAD_BYTES)
    for n in range(300):
        put(cache, p64(n), n, None)
        cache.clear()
    assert len(cache._small) + len(cache._main) <= 1


class History(RuleBasedStateMachine):
    """Compare the cache with a model that has every revision: the cache gives true answers, or none.

    ``committed`` is the truth of the storage nodes; ``last`` the last transaction applied in the
    client.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(6 * OVERHEAD_BYTES)
        self.revisions: dict[bytes, list[int]] = {p64(n): [1] for n in range(3)}
        self.committed = self.last = 1
        self.waiting: list[tuple[int, list[bytes]]] = []
        self.loads: list[tuple[bytes, Load, int, Loaded | None]] = []

    def answer(self, oid: bytes, before: int) -> Loaded:
        """Return the answer of a storage node at this moment."""
        tids = self.revisions[oid]
        tid = max(t for t in tids if t < before)
        later = [t for t in tids if t > tid]
        return Loaded(b"%d" % tid, p64(tid), p64(min(later)) if later else None)

    @rule(oids=st.sets(st.integers(0, 2), min_size=1))
    def commit(self, oids: set[int]) -> None:
        self.committed += 1
        for n in oids:
            self.revisions[p64(n)].append(self.committed)
        self.waiting.append((self.committed, [p64(n) for n in oids]))

    @precondition(lambda self: self.waiting)
    @rule(own=st.booleans())
    def take_effect(self, own: bool) -> None:
        tid, oids = self.waiting.pop(0)
        if own:
            self.cache.committed(p64(tid), dict.fromkeys(oids, b"%d" % tid))
        else:
            self.cache.invalidate(p64(tid), oids)
        self.last = tid

    @rule(n=st.integers(0, 2), age=st.integers(0, 3))
    def begin(self, n: int, age: int) -> None:
        load = self.cache.load_begins(p64(n))
        self.loads.append((p64(n), load, max(2, self.last + 1 - age), None))

    @precondition(lambda self: self.loads)
    @rule(data=st.data())
    def proceed(self, data: st.DataObject) -> None:
        """Let a storage node answer, or put the answer into the cache."""
        i = data.draw(st.integers(0, len(self.loads) - 1))
        oid, load, before, loaded = self.loads[i]
        if loaded is None:
            self.loads[i] = oid, load, before, self.answer(oid, before)
        else:
            del self.loads[i]
            self.cache.load_ends(oid, load, loaded)

    @rule()
    def reconnect(self) -> None:
        self.waiting.clear()
        self.cache.clear()
        self.last = self.committed

    @rule(evicted=st.booleans())
    def restart(self, evicted: bool) -> None:
        """Keep the cache, as specification 16.48 says; a smaller one evicts."""
        _, kept = self.cache.kept()
        changed = {oid for _, oids in self.waiting for oid in oids}
        self.cache = Cache((3 if evicted else 6) * OVERHEAD_BYTES)
        self.cache.restoring()
        self.loads.clear()
        self.waiting.clear()
        self.last = self.committed
        right = (r for r in kept if r.next_tid is not None or r.oid not in changed)
        self.cache.restore(Record(r.oid, r.tid, r.next_tid, r.data or b"") for r in right)

    @invariant()
    def everything_known_is_true(self) -> None:
        assert self.cache.size <= self.cache.capacity
        for oid in self.revisions:
            for before in range(2, self.last + 2):
                found = self.cache.load_before(oid, p64(before))
                if found is not None:
                    true = self.answer(oid, before)
                    assert found[:2] == true[:2]
                    if found.next_tid is None:
                        assert true.next_tid is None or u64(true.next_tid) > self.last
                    else:
                        assert found.next_tid == true.next_tid


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=150, stateful_step_count=40)


def test_threads_that_load_while_others_commit_never_see_stale_data() -> None:
    """Make the same comparison with real threads; ``last`` is published after the invalidation."""
    cache = Cache(40 * OVERHEAD_BYTES)
    oids = [p64(n) for n in range(8)]
    revisions = {oid: [1] for oid in oids}
    last = [1]
    stop = threading.Event()

    def commit() -> None:
        chance = random.Random(1)
        for tid in range(2, 4000):
            oid = chance.choice(oids)
            revisions[oid].append(tid)
            cache.invalidate(p64(tid), [oid])
            last[0] = tid
        stop.set()

    def load() -> None:
        chance = random.Random(2)
        while not stop.is_set():
            oid = chance.choice(oids)
            view = last[0] + 1
            found = cache.load_before(oid, p64(view))
            if found is None:
                begun = cache.load_begins(oid)
                tids = list(revisions[oid])
                tid = max(t for t in tids if t < view)
                later = [p64(t) for t in tids if t > tid]
                cache.load_ends(oid, begun, Loaded(b"", p64(tid), min(later, default=None)))
            else:
                assert u64(found.tid) == max(t for t in list(revisions[oid]) if t < view)

    assert in_threads(commit, load, load, load) == [None] * 4


def test_hits_and_misses_are_counted() -> None:
    """Specification 17.65."""
    cache = Cache(10_000)
    put(cache, OID, 5, None, b"data")
    cache.load_before(OID, p64(6))
    cache.load_before(p64(2), p64(6))  # not there: the load that follows counts
    put(cache, p64(2), 5, None, b"more")
    figures = cache.figures("web1:77")
    assert (figures.name, figures.capacity, figures.size) == ("web1:77", 10_000, cache.size)
    assert (figures.entries, figures.hits, figures.misses) == (2, 1, 2)
