"""Comparison and repair of replicas, as the master leads it (specification 11).

For each partition one storage node compares all readable cells and reports those that are wrong. The
master makes these CORRUPTED, which takes them out of service. It never does so with the last readable
cells: if it is unknown which of two copies is right, both go on serving, and the operator must name one
(``neoctl print check``, then ``neoctl check PARTITION:NODE``).

In a backup that is connected to its upstream cluster, a cell of that cluster is the reference, unless the
operator names another one. So a single copy can be checked, too. Cells are compared up to the tid that
readers see, up to which every cell is complete.

A CORRUPTED cell is repaired as OUT_OF_DATE: its node erases it and copies it anew.

The scrub (:mod:`neo.master.maintenance.scrub`) compares one partition at a time, beside the checks of the
operator. The report has only partitions that it found wrong, or right after they had been wrong.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from neo.master.cluster import Cluster
from neo.master.denial import denied
from neo.master.maintenance.pack import Packs
from neo.protocol.enums import CellState, NodeState
from neo.protocol.ids import ZERO_TID, format_nid, format_nids
from neo.protocol.packets import (
    FEATURE_BLOBS,
    FEATURE_OURS,
    Address,
    AnswerCheckReport,
    CellChange,
    CheckPartition,
    MendCell,
    NotifyCellsBehind,
    VerifyContents,
)
from neo.topology.nodes import Node

logger = logging.getLogger("neo.master")


class Finding(Enum):
    RUNNING = "running"  # being compared
    UNKNOWN = "unknown"  # compared by a node that reports differences only
    ALONE = "alone"  # there is nothing to compare
    EQUAL = "equal"
    BEHIND = "behind"  # cells lacked transactions when the cluster started, and are replicated
    CORRUPTED = "corrupted"  # wrong cells were taken out of service
    UNDECIDED = "undecided"  # cells differ, and it is unknown which one is right, or no right one is here
    FAILED = "failed"  # not compared to the end


@dataclass(slots=True)
class Row:
    """The last check of a partition. ``by``: the node that compares. ``upstream``: the reference is a
    cell of the upstream cluster."""

    by: int | None
    finding: Finding
    text: str = ""
    upstream: bool = False
    #: The cell is being made equal to the upstream cluster.
    mended: bool = False
    #: Found before service, by a comparison of the last rows of the cells.
    at_start: bool = False
    #: Findings by node: in which way its cell is behind.
    behind: dict[int, str] = field(default_factory=dict)
    #: Cells are compared up to this tid.
    max_tid: bytes = ZERO_TID
    #: The scrub asked for this comparison.
    scrub: bool = False

    @property
    def open(self) -> bool:
        return self.finding in (Finding.RUNNING, Finding.UNKNOWN)

    @property
    def wrong(self) -> bool:
        return self.finding in (Finding.CORRUPTED, Finding.UNDECIDED)


class Upstream(Protocol):
    """The upstream cluster of a backup; a cluster that is no backup has no source there."""

    def source(self, partition: int) -> tuple[str, Address] | None:
        """Return the name of the upstream cluster, and the address of a node from which the partition can
        be read now. Return None if there is no such node."""


class Checks:
    """The last check, and findings of the scrub. Bound: one row per partition, and one more."""

    def __init__(self, cluster: Cluster, packs: Packs, upstream: Upstream) -> None:
        self._cluster = cluster
        self._packs = packs
        self._upstream = upstream
        self._rows: dict[int, Row] = {}
        self._min_tid = self._max_tid = ZERO_TID
        #: The partition that the scrub compares, and the callback for its end.
        self._scrubbed: tuple[int, Row, Callable[[Finding], None]] | None = None
        #: Whether the node that compares it reports the end.
        self._awaits = False
        #: The question of the operator about that partition. It is sent when the scrub has its answer,
        #: because answers do not say to which question they belong.
        self._deferred: tuple[Row, CheckPartition] | None = None

    # -- commands ----------------------------------------------------------------------------------

    def start(
        self, references: Mapping[int, int | None], min_tid: bytes, max_tid: bytes | None
    ) -> None:
        """Compare partitions (CheckReplicas). Raise ErrorAnswer before any node is asked."""
        cluster = self._cluster
        last = cluster.last_tid if max_tid is None else min(max_tid, cluster.last_tid)
        if not references:
            raise denied("no partition is named")
        if min_tid > last:
            raise denied(
                f"no transaction from {min_tid.hex()} to {last.hex()}: the last one of the cluster"
                f" is {cluster.last_tid.hex()}"
            )
        if self._packs.running:
            raise denied("a pack is running: replicas differ until it ends")
        checked = [self._valid(partition, nid) for partition, nid in references.items()]
        self._deferred = None
        self._rows = {p: r for p, r in self._rows.items() if r.scrub and p not in references}
        self._min_tid, self._max_tid = min_tid, last
        load: Counter[int] = Counter()
        for (partition, reference), cells in zip(references.items(), checked, strict=True):
            self._rows[partition] = self._ask(partition, reference, cells, load, min_tid, last)

    @property
    def running(self) -> bool:
        """Whether a comparison that the operator asked for is under way."""
        return any(row.finding is Finding.RUNNING for row in self._rows.values())

    def scrub(self, partition: int, ended: Callable[[Finding], None]) -> None:
        """Compare all of a partition, which must exist. ``ended`` is called with the finding."""
        if self._scrubbed is not None:
            # The node that compares it reports differences only.
            self._end_scrub(self._scrubbed[1].finding)
        cells = self._valid(partition, None)
        row = self._ask(partition, None, cells, Counter(), ZERO_TID, self._cluster.last_tid)
        row.scrub = True
        self._awaits = row.finding is Finding.RUNNING
        self._scrubbed = partition, row, ended
        if row.by is None:
            self._end_scrub(row.finding)

    @property
    def scrubbing(self) -> bool:
        """Whether the scrub waits for an answer, also after a difference was reported."""
        return self._scrubbed is not None and self._awaits

    def _end_scrub(self, finding: Finding) -> None:
        assert self._scrubbed is not None
        partition, row, ended = self._scrubbed
        self._scrubbed = None
        self._keep(partition, row)
        ended(finding)
        deferred, self._deferred = self._deferred, None
        if deferred is not None and deferred[0].open:
            asked, question = deferred
            assert asked.by is not None
            self._cluster.connected[asked.by].send(question)

    def _keep(self, partition: int, row: Row) -> None:
        """Add a finding of the scrub to the report, if the partition is wrong or was wrong."""
        old = self._rows.get(partition)
        if row.wrong and (old is None or not old.open):
            self._rows[partition] = row
        elif old is not None and old.wrong and row.finding is Finding.EQUAL:
            self._rows[partition] = row

    def _row(self, nid: int, partition: int) -> Row | None:
        """Return the row for which this node compares a partition; that of the scrub is asked first."""
        if self._scrubbed is not None:
            scrubbed, row, _ = self._scrubbed
            if (scrubbed, row.by) == (partition, nid):
                return row
        return self._rows.get(partition)

    def _check_exists(self, partition: int) -> None:
        count = len(self._cluster.partitions)
        if not 0 <= partition < count:
            raise denied(f"there is no partition {partition}: 0 to {count - 1} exist")

    def _valid(self, partition: int, reference: int | None) -> list[int]:
        """Return the nodes that can be compared. Raise ErrorAnswer for wrong arguments."""
        self._check_exists(partition)
        cells = sorted(self._cluster.ready.intersection(self._cluster.partitions.readable(partition)))
        if reference is not None and reference not in cells:
            raise denied(
                f"{format_nid(reference)} has no readable cell of partition {partition}, so that it"
                " cannot be the reference"
            )
        return cells

    def _ask(
        self,
        partition: int,
        reference: int | None,
        cells: list[int],
        load: Counter[int],
        min_tid: bytes,
        max_tid: bytes,
    ) -> Row:
        self._verify_contents(partition, cells)
        upstream = self._upstream.source(partition) if reference is None and cells else None
        if len(cells) < 2 and upstream is None:
            return Row(None, Finding.ALONE, "one readable copy")
        address = None if reference is None else self._node(reference).address
        nid = min((nid for nid in cells if nid != reference), key=lambda nid: (load[nid], nid))
        load[nid] += 1
        tells = FEATURE_OURS in self._node(nid).features
        finding = Finding.RUNNING if tells else Finding.UNKNOWN
        row = Row(nid, finding, upstream=upstream is not None, max_tid=max_tid)
        question = CheckPartition(partition, upstream or ("", address), min_tid, max_tid)
        if self.scrubbing and self._scrubbed and self._scrubbed[0] == partition:
            self._deferred = row, question
        else:
            self._cluster.connected[nid].send(question)
        return row

    def _verify_contents(self, partition: int, cells: list[int]) -> None:
        """Have each node compare its contents of blobs with their checksums. A node copies damaged
        contents from another node without a further order (specification 26.22)."""
        for nid in cells:
            if FEATURE_BLOBS in self._node(nid).features:
                self._cluster.connected[nid].send(VerifyContents(partition))

    def _node(self, nid: int) -> Node:
        node = self._cluster.nodes.get(nid)
        assert node is not None
        return node

    def repair(self, cells: Iterable[tuple[int, int]]) -> int:
        """Repair cells (RepairCells), and return their number. Raise ErrorAnswer before anything is
        changed."""
        changes: dict[tuple[int, int], CellChange] = {}
        mended: dict[int, tuple[int, tuple[str, Address]]] = {}
        for partition, nid in cells:
            if self._differs(partition, nid):
                if (source := self._upstream.source(partition)) is None:
                    raise denied(f"partition {partition} cannot be read in the upstream cluster now")
                mended[partition] = nid, source
            else:
                self._repairable(partition, nid)
                changes[partition, nid] = partition, nid, CellState.OUT_OF_DATE
        for partition, (nid, source) in mended.items():
            max_tid = self._rows[partition].max_tid
            self._rows[partition] = Row(nid, Finding.RUNNING, upstream=True, mended=True)
            self._cluster.connected[nid].send(MendCell(partition, source, max_tid))
        if changes:
            self._cluster.change_partitions(list(changes.values()))
        return len(changes) + len(mended)

    def _differs(self, partition: int, nid: int) -> bool:
        """Return whether the cell is one of the last copies and was found to differ from the upstream
        cluster."""
        row, cluster = self._rows.get(partition), self._cluster
        return (
            row is not None
            and (row.finding, row.upstream) == (Finding.UNDECIDED, True)
            and nid in set(cluster.partitions.readable(partition)) & cluster.ready
            and FEATURE_OURS in self._node(nid).features
        )

    def _repairable(self, partition: int, nid: int) -> None:
        self._check_exists(partition)
        state = self._cluster.partitions.state(partition, nid)
        if state is None:
            raise denied(f"{format_nid(nid)} has no cell of partition {partition}")
        if state is not CellState.CORRUPTED:
            raise denied(
                f"the cell of partition {partition} of {format_nid(nid)} is {state.name}: only"
                " CORRUPTED ones are repaired"
            )
        node = self._cluster.nodes.get(nid)
        if node is None or node.state is not NodeState.RUNNING:
            raise denied(f"{format_nid(nid)} does not run: start it first")

    def report(self) -> AnswerCheckReport:
        """Return all rows; those that need attention come first."""
        order = list(Finding)[::-1]
        rows = sorted(self._rows.items(), key=lambda item: (order.index(item[1].finding), item[0]))
        return AnswerCheckReport(
            self._min_tid,
            self._max_tid,
            [(partition, row.by, row.finding.value, row.text) for partition, row in rows],
        )

    # -- the comparison before service ---------------------------------------------------------------

    def compared(self, texts: Mapping[int, str], decided: bool) -> None:
        """Note that cells of these partitions lack data of others. ``decided``: they are replicated."""
        self._max_tid = self._cluster.last_tid
        finding = Finding.BEHIND if decided else Finding.UNDECIDED
        for partition, text in texts.items():
            self._rows[partition] = Row(None, finding, text, at_start=True)

    def forget_comparison(self) -> None:
        """Forget the findings of the last comparison before service, because a new one begins."""
        self._rows = {p: row for p, row in self._rows.items() if not row.at_start}

    # -- reports of storage nodes -------------------------------------------------------------------

    def corrupted(self, nid: int, partition: int, nids: Iterable[int]) -> None:
        """React to cells that differ (NotifyPartitionCorrupted)."""
        row = self._row(nid, partition)
        if row is None or row.by != nid or row.finding is Finding.FAILED:
            logger.warning("%s reports a partition that it was not asked to compare", format_nid(nid))
            return
        readable = set(self._cluster.partitions.readable(partition))
        wrong = sorted(readable.intersection(nids))
        if wrong:
            self._differ(row, partition, wrong, bool((readable - set(wrong)) & self._cluster.ready))
            if row.scrub:
                self._keep(partition, row)

    def _differ(self, row: Row, partition: int, wrong: list[int], others: bool) -> None:
        """Take wrong cells out of service if ``others`` can be read; else leave it to the operator."""
        names = format_nids(wrong)
        if not others and row.upstream:
            row.finding = Finding.UNDECIDED
            row.text = (
                f"{names} differ from the upstream cluster: check that one, too; if it is right:"
                f" neoctl repair {partition}:{format_nid(wrong[0])}"
            )
            logger.error(
                "partition %s: %s differ from the upstream cluster: check that one, too; if it is"
                " right: neoctl repair %s:%s",
                partition,
                names,
                partition,
                format_nid(wrong[0]),
            )
            return
        if others:
            logger.error("partition %s is corrupted on %s: neoctl repair", partition, names)
            row.finding = Finding.CORRUPTED
            text = f"wrong on {names}: neoctl repair {partition}:"
            changes = [(partition, bad, CellState.CORRUPTED) for bad in wrong]
            self._cluster.change_partitions(changes)
        else:
            logger.error(
                "partition %s: %s differ, and it is not known which is right: name the one to"
                " believe: neoctl check %s:NODE",
                partition,
                names,
                partition,
            )
            row.finding = Finding.UNDECIDED
            text = f"{names} differ: name the one to believe: neoctl check {partition}:NODE"
        row.text = "; ".join([text, *row.behind.values()])

    def behind(self, nid: int, m: NotifyCellsBehind) -> None:
        """Note in which way cells are behind that will be reported (NotifyCellsBehind)."""
        row = self._rows.get(m.partition)
        if row is None or row.by != nid:
            return
        what = "revisions" if m.revisions else "transactions"
        for other, (since, count) in sorted(m.behind_dict.items()):
            row.behind[other] = (
                f"{format_nid(other)} is behind {format_nid(m.nid)}: it lacks at least {count} {what}"
                f" from {since.hex()} on"
            )
            logger.error("partition %s: %s", m.partition, row.behind[other])

    def checked(self, nid: int, partition: int, problem: str) -> None:
        """End a comparison (NotifyPartitionChecked)."""
        row = self._row(nid, partition)
        if row is None or row.by != nid:
            return
        if row.finding is Finding.RUNNING:
            self._compared(row, nid, partition, problem)
        if self._scrubbed is not None and self._scrubbed[1] is row:
            self._end_scrub(row.finding)

    def _compared(self, row: Row, nid: int, partition: int, problem: str) -> None:
        if problem:
            logger.error("partition %s could not be checked: %s", partition, problem)
        row.finding, row.text = (Finding.FAILED, problem) if problem else (Finding.EQUAL, "")
        if row.mended and not problem:
            logger.info("partition %s of %s was repaired from upstream", partition, format_nid(nid))
            row.text = f"{format_nid(nid)} got what it lacked of the upstream cluster: check again"

    # -- events ------------------------------------------------------------------------------------

    def cells_changed(self, ptid: int, changes: list[CellChange]) -> None:
        """A comparison goes on with the cells that it began with."""

    def table_confirmed(self) -> None:
        """Comparisons do not depend on it."""

    def storage_lost(self, nid: int) -> None:
        self._fail(f"{format_nid(nid)} was lost", lambda row: row.by == nid)

    def upstream_lost(self) -> None:
        """Fail comparisons with the upstream cluster, which may come back with another history."""
        self._fail("the upstream cluster was lost", lambda row: row.upstream)

    def operation_stopped(self) -> None:
        self._fail("the cluster stopped operating", lambda row: True)

    def _fail(self, reason: str, which: Callable[[Row], bool]) -> None:
        for row in self._rows.values():
            if row.open and which(row):
                row.finding, row.text = Finding.FAILED, reason
        if self._scrubbed is not None and which(self._scrubbed[1]):
            self._end_scrub(Finding.FAILED)
