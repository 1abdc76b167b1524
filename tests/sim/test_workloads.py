"""Each workload does its work, and its invariants find damage."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from persistent.mapping import PersistentMapping
from ZODB.BaseStorage import DataRecord
from ZODB.Connection import TransactionMetaData
from ZODB.DB import DB
from ZODB.MappingStorage import MappingStorage

from neo.net.fault_sites import FaultSite
from neo.protocol.ids import ZERO_TID, p64, u64
from tests.simulator.backup_site import Shown
from tests.simulator.faults import Sites
from tests.simulator.history import History
from tests.simulator.knobs import KNOBS, LATER_KNOBS, turned
from tests.simulator.run import Options, Run
from tests.simulator.trial import attempt
from tests.simulator.workloads import WORKLOADS
from tests.simulator.workloads.base import Context
from tests.simulator.workloads.iteration import Iteration
from tests.simulator.workloads.restore import Restore
from tests.simulator.workloads.visitors import Visitors
from tests.simulator.world import Violation, World
from tests.support.whole import few


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_workload_commits_and_every_thread_makes_progress(name: str) -> None:
    trial = attempt(3, Options(seconds=2.0, workloads=(name,), faults=("none",)), twice=False)
    assert trial.result is not None, trial.report(30)
    assert trial.result.attempts > 0 or name == "iteration"
    assert trial.result.reads > 0


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_workload_survives_faults(name: str) -> None:
    for seed in few(0, whole=range(8)):
        trial = attempt(seed, Options(seconds=2.0, workloads=(name,)), twice=False)
        assert trial.result is not None, trial.report(30)


@pytest.mark.parametrize("seed", [2])
def test_all_workloads_compose(seed: int) -> None:
    """Run with the usual knobs. If objects were read one by one, a garbage collection would fall behind
    forty threads, and never end. Behind these a copy needs its luck, too: with seed 1 it starves."""
    nothing = ("none",)
    options = Options(seconds=1.0, workloads=tuple(WORKLOADS), faults=nothing, knobs=nothing)
    trial = attempt(seed, options, twice=False)
    assert trial.result is not None, trial.report(30)


# -- what a workload must not do to itself, or to others ----------------------------------------------


def _alone(db: DB, **given: Any) -> Context:
    """Return a context of one thread, the only user of the database."""
    nothing: dict[str, Any] = dict.fromkeys(("log", "spawn", "sleep", "new_file"), lambda _: None)
    return Context(**{"db": db, "random": Random(1), "open": lambda: db} | nothing | given)


def test_an_interruption_that_comes_after_the_visit_closes_the_storage_again() -> None:
    storage = MappingStorage()
    interruptions: list[Callable[[], None]] = []
    workload = Visitors(Random(0))
    workload.setup(_alone(DB(storage)))
    workload.step(_alone(DB(storage), spawn=interruptions.append), 0)
    (interruption,) = interruptions
    interruption()
    assert not storage.opened()


def test_a_look_at_histories_costs_no_more_when_they_are_long() -> None:
    class Long:
        """A storage with large transactions, and objects with long histories."""

        asked = 0

        def undoLog(self, first: int, last: int) -> list[dict[str, bytes]]:
            return [{"id": p64(1)}]

        def iterator(self, start: bytes, stop: bytes) -> list[list[DataRecord]]:
            return [[DataRecord(p64(n), start, b"", None) for n in range(1000)]]

        def lastTransaction(self) -> bytes:
            return p64(1)

        def history(self, oid: bytes, size: int) -> list[dict[str, bytes]]:
            self.asked += size
            return []

    storage: Any = Long()
    Iteration(Random(0))._log(_alone(SimpleNamespace(storage=storage)))
    assert 0 < storage.asked <= 300


def test_oids_of_copies_are_below_one_in_use_so_that_no_master_gives_them_again() -> None:
    storage = MappingStorage()
    workload = Restore(Random(0))
    workload.setup(_alone(SimpleNamespace(storage=storage)))
    (stored,) = (record.oid for t in storage.iterator() for record in t)
    oids = list(workload.oids)
    assert oids and max(oids) < stored
    workload.setup(_alone(SimpleNamespace(storage=storage)))
    assert workload.oids == oids


def test_tids_of_copies_are_not_those_that_masters_give_next() -> None:
    last = p64(1 << 50)
    storage: Any = SimpleNamespace(lastTransaction=lambda: last)
    workload = Restore(Random(0))
    workload.oids = [p64(1)]
    for seed in range(50):
        context = _alone(SimpleNamespace(storage=storage), random=Random(seed))
        tids = [last, *(transaction.tid for transaction in workload._make(context, 1))]
        assert all(u64(after) - u64(tid) > 500_000 for tid, after in pairwise(tids))


def test_a_cluster_that_leaves_its_mode_as_a_backup_may_give_oids_that_are_in_use_upstream() -> (
    None
):
    history = History(World(0))
    attempt = history.begin("client1")
    attempt.stored[p64(1)] = ZERO_TID
    history.committed(attempt, p64(1))
    reader = Shown(SimpleNamespace(new_oid=lambda: p64(1)), history, lambda: "b-client1")
    assert reader.new_oid() == p64(1)


# -- planted damage: what an application would see if the storage were wrong ------------------------


def _root(change: Callable[[Any], None]) -> Callable[[Context], None]:
    def damage(context: Context) -> None:
        with context.connection() as (connection, manager):
            change(connection.root())
            manager.commit()

    return damage


def _add(key: str, name: str) -> Callable[[Any], None]:
    def change(root: Any) -> None:
        root[key][name] += 1

    return change


def _debt(root: Any) -> None:
    root["skew0"]["balance"] = -1 - root["skew1"]["balance"]


def _delete_in_use(context: Context) -> None:
    """Delete an object that is in use, like a wrong garbage collection."""
    with context.connection() as (connection, manager):
        item = connection.root()["box0"]["head"] = PersistentMapping()
        manager.commit()
        storage: Any = context.storage
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        storage.deleteObject(item._p_oid, item._p_serial, transaction)
        storage.tpc_vote(transaction)
        invalidate = context.db._mvcc_storage.invalidate
        storage.tpc_finish(transaction, lambda tid: invalidate(tid, [item._p_oid]))


DAMAGES: dict[str, Callable[[Context], None]] = {
    "resolving-bank": _root(lambda root: root["resolving-bank"][0].change(10**6)),
    "bank": _root(lambda root: root["bank"][0].update(balance=10**6)),
    "big": _root(lambda root: root["big"]["items"][0].update(value=-1)),
    "counters": _root(lambda root: root["counter0"].change(-1000)),
    "deadlocks": _root(_add("group0", "value")),
    "growth": _root(lambda root: root["growth"].clear()),
    "increments": _root(_add("increments-a", "value")),
    "pack": _delete_in_use,
    "phases": _root(lambda root: root["phases-b"].update(value=10**6)),
    "skew": _root(_debt),
    "undo": _root(_add("undo0", "value")),
    "visitors": _root(lambda root: root["visitors"].change(-1000)),
}


@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_a_damaged_invariant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary commit damages the data before the check at the end."""
    check = WORKLOADS[name].check

    def damaged(self: Any, context: Context) -> None:
        DAMAGES[name](context)
        check(self, context)

    monkeypatch.setattr(WORKLOADS[name], "check", damaged)
    options = Options(seconds=2.0, workloads=(name,), faults=("none",))
    with pytest.raises(Violation, match=name.removesuffix("s")):
        Run(3, options).execute()


# -- knobs and fault sites --------------------------------------------------------------------------


def test_knobs_are_turned_while_the_run_lasts_and_never_all() -> None:
    knobs = (*KNOBS, *LATER_KNOBS)
    assert len({knob.name for knob in knobs}) == len(knobs)

    def values() -> list[object]:
        return [getattr(m, knob.name) for knob in knobs for m in knob.modules()]

    usual = values()
    turned_names: set[str] = set()
    for seed in range(40):
        with turned(World(seed)) as changed:
            turned_names.update(changed)
            assert len(changed) < len(knobs)
            for knob in knobs:
                for module in knob.modules():
                    if knob.name in changed:
                        assert getattr(module, knob.name) == changed[knob.name]
        assert values() == usual
    assert turned_names == {knob.name for knob in knobs}


def test_sites_and_knobs_that_are_left_out_leave_the_other_choices_of_a_seed() -> None:
    full, part = World(2), World(2)
    all_sites, some_sites = Sites(full), Sites(part, ("READ_LATE",))
    with turned(full) as every, turned(part, ("WINDOW",)) as some:
        assert some == {name: every[name] for name in ("WINDOW",) if name in every}
    assert full.random.getstate() == part.random.getstate()
    for sites in all_sites, some_sites:
        sites.start()
        for site in FaultSite:
            for _ in range(200):
                sites("somebody", site)
    assert set(some_sites.fired) <= {"READ_LATE"}
    assert len(all_sites.fired) > 1


def test_a_seed_enables_some_fault_sites_which_fire_only_between_start_and_stop() -> None:
    enabled = set()
    for seed in range(40):
        sites = Sites(World(seed))
        assert not any(sites("somebody", site) for site in FaultSite for _ in range(50))
        sites.start()
        fired = {site for site in FaultSite for _ in range(200) if sites("somebody", site)}
        assert len(fired) < len(FaultSite)
        assert {site.name for site in fired} == set(sites.fired)
        enabled |= fired
        sites.stop()
        assert not any(sites("somebody", site) for site in FaultSite for _ in range(50))
    assert enabled == set(FaultSite)
