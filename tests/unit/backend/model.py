"""A model of a backend, with which each is compared at every step."""

from __future__ import annotations

from hashlib import sha1
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from neo.storage.backend.api import Prepared
from tests.unit.backend.harness import NP, Harness, p64

OIDS = st.integers(0, 5)
ALL = range(NP)

#: A change of an object: (data, serial it was taken from by an undo).
Change = tuple[bytes | None, int | None]


class Machine(RuleBasedStateMachine):
    node: ClassVar[Harness]
    dedup: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.node.close()
        self.backend: Any = self.node.ready(dedup=self.dedup)
        self.tid = 100
        self.committed: dict[int, dict[int, Change]] = {oid: {} for oid in range(6)}
        self.trans: dict[int, list[int]] = {}
        self.voted: dict[int, tuple[dict[int, Change], bool, int | None]] = {}
        self.unvoted: list[tuple[int, bytes]] = []
        self.prepared: dict[int, Prepared] = {}
        self.decided: dict[bytes, bytes] = {}
        self.packed = 0
        self.counter = 0

    def teardown(self) -> None:
        self.node.close()

    def next_tid(self) -> int:
        self.tid += NP  # all of one partition, as ttid and tid of a transaction have to be
        return self.tid

    def data(self, same: bool) -> bytes:
        self.counter += not same
        return b"value %d" % self.counter

    # -- rules ----------------------------------------------------------------------------------

    @rule(oids=st.sets(OIDS, min_size=1), meta=st.booleans(), same=st.booleans())
    def vote(self, oids: set[int], meta: bool, same: bool) -> None:
        ttid = self.next_tid()
        changes = {oid: self.data(same) for oid in sorted(oids)}
        self.node.vote(self.backend, ttid, dict(changes), meta)
        self.voted[ttid] = {oid: (data, None) for oid, data in changes.items()}, meta, None

    @rule(oid=OIDS, choice=st.randoms(use_true_random=False))
    def vote_undo(self, oid: int, choice: Any) -> None:
        serials = [s for s, change in self.committed[oid].items()] + [None]
        serial = choice.choice(serials)
        ttid = self.next_tid()
        stored = self.node.store(self.backend, oid, serial)
        self.backend.commits.vote(p64(ttid), None, [stored])
        data = None if serial is None else self.committed[oid][serial][0]
        change = (data, serial if data is not None else None)
        self.voted[ttid] = {oid: change}, False, None

    @rule(oid=OIDS, same=st.booleans())
    def store(self, oid: int, same: bool) -> None:
        data = self.data(same)
        data_id = self.node.store_data(self.backend, oid, data)
        self.unvoted.append((data_id, data))

    @precondition(lambda self: self.unvoted)
    @rule()
    def release(self) -> None:
        self.backend.values.release_data(data_id for data_id, _ in self.unvoted)
        self.unvoted.clear()

    @precondition(lambda self: self.voted)
    @rule(choice=st.randoms(use_true_random=False))
    def abort(self, choice: Any) -> None:
        ttid = choice.choice(sorted(self.voted))
        self.backend.commits.abort(p64(ttid))
        del self.voted[ttid]
        self.prepared.pop(ttid, None)

    @precondition(lambda self: self.voted)
    @rule(choice=st.randoms(use_true_random=False), validate=st.booleans())
    def finish(self, choice: Any, validate: bool) -> None:
        ttid = choice.choice(sorted(self.voted))
        tid = self.next_tid()
        if not validate:
            self.backend.commits.lock(p64(ttid), p64(tid))
        (self.backend.commits.validate if validate else self.backend.commits.unlock)(p64(ttid), p64(tid))
        changes, meta, _ = self.voted.pop(ttid)
        mark = self.prepared.pop(ttid, None)
        if meta:
            self.trans[tid] = sorted(changes)
            if mark is not None:
                self.decided[mark.xid] = p64(tid)
        for oid, change in changes.items():
            self.committed[oid][tid] = change

    @precondition(lambda self: self.voted)
    @rule(choice=st.randoms(use_true_random=False))
    def lock(self, choice: Any) -> None:
        ttid = choice.choice(sorted(self.voted))
        changes, meta, _ = self.voted[ttid]
        tid = self.next_tid()
        self.backend.commits.lock(p64(ttid), p64(tid))
        self.voted[ttid] = changes, meta, tid if meta else None

    @rule(back=st.integers(0, 10))
    def truncate(self, back: int) -> None:
        last = self.tid - back * NP
        self.backend.maintenance.truncate(p64(last), list(ALL))
        self.trans = {tid: oids for tid, oids in self.trans.items() if tid <= last}
        for oid, revisions in self.committed.items():
            self.committed[oid] = {tid: c for tid, c in revisions.items() if tid <= last}
        self.decided = {xid: tid for xid, tid in self.decided.items() if tid <= p64(last)}

    @rule(back=st.integers(0, 10), length=st.integers(1, 3))
    def pack(self, back: int, length: int) -> None:
        tid = max(self.tid - back * NP, self.packed)
        self.packed = tid
        for partition in ALL:
            after: bytes | None = p64(0)
            while after is not None:
                after = self.backend.maintenance.pack(p64(tid), partition, after, length)
        packed = [oid for oid, found in self.committed.items() if found and min(found) <= tid]
        lasts = {max(o for o in packed if o % NP == p) for p in {o % NP for o in packed}}
        for oid, revisions in self.committed.items():
            older = sorted(t for t in revisions if t <= tid)
            if older and (revisions[older[-1]][0] is not None or oid in lasts):
                older.pop()
            for serial in older:
                del revisions[serial]

    @rule(durable=st.booleans())
    def restart(self, durable: bool) -> None:
        if durable:
            self.node.wait(self.backend.engine.stored)
        self.node.close()
        self.backend = self.node.open(dedup=self.dedup)
        self.unvoted.clear()
        self.backend.maintenance.prune_orphans(False, 0, 1000)

    @precondition(lambda self: self.voted)
    @rule(choice=st.randoms(use_true_random=False))
    def prepare(self, choice: Any) -> None:
        ttid = choice.choice(sorted(self.voted))
        mark = Prepared(p64(ttid), b"xid %d" % ttid, float(ttid), b"", [*ALL])
        self.backend.marks.mark_prepared(mark, [(p64(oid), p64(ttid)) for oid in range(2)])
        self.prepared[ttid] = mark

    @rule()
    def start_operation(self) -> None:
        self.backend.commits.drop_unfinished([p64(ttid) for ttid in self.prepared])
        self.voted = {ttid: (*self.voted[ttid][:2], None) for ttid in self.prepared}

    # -- what must hold -------------------------------------------------------------------------

    @invariant()
    def reads_are_those_of_the_model(self) -> None:
        backend = self.backend
        backend.engine.drain()
        for oid, revisions in self.committed.items():
            serials = sorted(revisions, reverse=True)
            history = backend.reads.history(p64(oid), 0, 100)
            assert history == [(p64(s), len(revisions[s][0] or b"")) for s in serials]
            following = None
            for serial in serials:
                record = backend.reads.load(p64(oid), p64(serial), None)
                assert record == backend.reads.load(p64(oid), None, p64(serial + 1))
                assert record.next_serial == following
                data = revisions[serial][0]
                assert (record.compression is None) == (data is None)
                assert record.data == (data or b"")
                if record.data_serial is not None:
                    source = int.from_bytes(record.data_serial, "big")
                    assert source < serial
                    # Pack leaves no pointer to a removed revision, except from an undo that was
                    # under way while it ran.
                    assert source not in revisions or revisions[source][0] == data
                following = p64(serial)
            assert backend.reads.last_serial(p64(oid)) == (p64(serials[0]) if serials else None)
        assert backend.reads.tids_descending(0, 1000, ALL) == [
            p64(tid) for tid in sorted(self.trans, reverse=True)
        ]
        for partition in ALL:
            assert backend.reads.oids(partition, p64(0), 100) == [
                p64(oid)
                for oid, revisions in self.committed.items()
                if oid % NP == partition and revisions and revisions[max(revisions)][0] is not None
            ]

    @invariant()
    def transactions_in_progress_are_those_of_the_model(self) -> None:
        assert self.backend.commits.locked_transactions() == {
            p64(ttid): tid and p64(tid) for ttid, (_, _, tid) in self.voted.items()
        }

    @invariant()
    def marks_and_outcomes_are_those_of_the_model(self) -> None:
        assert {m.ttid: m for m in self.backend.marks.prepared()} == {
            m.ttid: m for m in self.prepared.values()
        }
        assert {d.xid: d.tid for d in self.backend.marks.decided()} == self.decided
        for ttid in self.voted:
            checks = [(p64(oid), p64(ttid)) for oid in range(2)] if ttid in self.prepared else []
            assert self.backend.commits.prepared_rows(p64(ttid)).checks == checks

    @invariant()
    def no_value_is_lost_and_none_is_left_over(self) -> None:
        self.backend.engine.drain()
        changes = [change for r in self.committed.values() for change in r.values()]
        changes += [c for voted, _, _ in self.voted.values() for c in voted.values()]
        used = {row[0] for row in self.node.select(self.backend, "data_id", "obj")}
        used |= {row[0] for row in self.node.select(self.backend, "data_id", "tobj")}
        used |= {data_id for data_id, _ in self.unvoted}
        used.discard(None)
        kept = self.node.select(self.backend, "id, hash", "data")
        assert {row[0] for row in kept} == used
        values = {sha1(c[0]).digest() for c in changes if c[0] is not None}
        values |= {sha1(data).digest() for _, data in self.unvoted}
        assert {row[1] for row in kept} == values
        if self.dedup:
            assert len(kept) == len(values)


def run_machine(node: Harness, dedup: bool, examples: int) -> None:
    machine = type("BackendMachine", (Machine,), {"node": node, "dedup": dedup})
    run(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
        ),
    )
