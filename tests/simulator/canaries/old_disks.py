"""Bugs of the comparison that finds disks which went back in time."""

from __future__ import annotations

from collections.abc import Mapping

from neo.master.phases import comparison
from neo.master.phases.comparison import Comparison
from neo.master.phases.survivors import Copies
from neo.master.phases.tails import Lack, Tail, Verdict, judge
from neo.protocol.ids import ZERO_TID
from neo.storage.replication import replicator
from tests.simulator.planting import Canary, Patch

OLD_DISKS = {
    "faults": ("old-disk", "lost-tail", "gap"),
    "workloads": ("bank", "increments"),
    "disk": "memory",
    "storages": 3,
    "replicas": 1,
    "seconds": 10.0,
}
PREPARED = {**OLD_DISKS, "workloads": ("prepared",), "seconds": 20.0}


def _comparison_ignored() -> list[Patch]:
    async def compare(*args: object) -> None: ...

    return [(Comparison, "compare", compare)]


def _behind_is_believed() -> list[Patch]:
    def wrong(tails: Mapping[int, Tail]) -> Verdict:
        verdict = judge(tails)
        if not verdict.references or verdict.equal:
            return verdict
        return Verdict(
            frozenset(verdict.lacks), {nid: Lack(ZERO_TID, 1) for nid in verdict.references}
        )

    return [(comparison, "judge", wrong)]


def _last_tids_compared() -> list[Patch]:
    def last(tails: Mapping[int, Tail]) -> Verdict:
        greatest = max((tail.last for tail in tails.values()), default=ZERO_TID)
        lacks = {nid: Lack(t.last, 1) for nid, t in tails.items() if t.last < greatest}
        return Verdict(frozenset(tails.keys() - lacks.keys()), lacks)

    return [(comparison, "judge", last)]


def _replicated_from_the_last() -> list[Patch]:
    """Rows after the gap are taken as a proof of the rows before it."""
    return [(replicator, "_begin", lambda tids: tids[-1] if tids else ZERO_TID)]


def _lost_mark_is_believed() -> list[Patch]:
    return [(Copies, "keep", Copies.missing)]


def _cell_stays_without_mark() -> list[Patch]:
    return [(Copies, "leave_behind", lambda self: None)]


CANARIES = (
    Canary(
        "comparison-ignored",
        "replicas are not compared before service",
        "reads: old data; workloads: sums are wrong; cells: replicas are not equal",
        _comparison_ignored,
        30,
        OLD_DISKS,
    ),
    Canary(
        "behind-is-believed",
        "the copy that lacks something is taken for the reference",
        "history: acknowledged transactions are lost",
        _behind_is_believed,
        30,
        OLD_DISKS,
    ),
    Canary(
        "last-tids-compared",
        "replicas are compared by their last tids only",
        "reads, cells: rows in a gap are missing",
        _last_tids_compared,
        30,
        OLD_DISKS,
        first=3,
    ),
    Canary(
        "replicated-from-the-last",
        "a cell with a gap is replicated from its last transaction on",
        "cells: replicas are not equal",
        _replicated_from_the_last,
        30,
        OLD_DISKS,
    ),
    Canary(
        "lost-mark-is-believed",
        "a prepared transaction is dropped if one copy lacks it, though that disk may have lost it",
        "workload: what is prepared is not listed; progress: its commit is refused for ever",
        _lost_mark_is_believed,
        60,
        PREPARED,
        first=2,
    ),
    Canary(
        "cell-stays-without-mark",
        "a copy that lost a prepared transaction stays readable",
        "reads, workload, cells: one copy lacks a commit",
        _cell_stays_without_mark,
        200,
        PREPARED,
        first=280,
    ),
)
