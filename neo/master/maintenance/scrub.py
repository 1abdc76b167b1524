"""The slow scrub: compares all copies in the background, once in a period, one partition at a time.

The wall clock tells which partition is due: the period has a *slot* for each. So no state is stored,
and a master that is restarted each night still completes its rounds, because it starts with the
partition that is due. A partition that could not be compared is tried again as long as its slot lasts.

The scrub waits while a check of the operator, a pack or the copy of a cell runs. Nodes compare with the
throttle of replication (:mod:`neo.storage.maintenance.check`). Findings are in the report of checks.
"""

from __future__ import annotations

from functools import partial

from neo.master.cluster import Cluster
from neo.master.maintenance.check import Checks, Finding
from neo.master.maintenance.pack import Packs
from neo.node.host import Host
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.packets import AnswerScrub

DAY_SECONDS = 86400.0
#: Attempts in a slot, and the longest pause between two.
TRIES = 10
PAUSE_SECONDS_MAX = 600.0


class Scrub:
    def __init__(
        self, cluster: Cluster, checks: Checks, packs: Packs, host: Host, period: float
    ) -> None:
        """``period``: seconds, 0 for never."""
        self._cluster = cluster
        self._checks = checks
        self._packs = packs
        self._host = host
        self._period = period
        self._slot: int | None = None  # of the comparison that is done or under way
        self._begun = host.time()
        #: The partitions of this round that were compared.
        self._compared: set[int] = set()
        self._round_end: float | None = None

    def start(self) -> None:
        """Start the scrub. Call once; it reschedules itself."""
        if self._period:
            self._plan()

    def _plan(self) -> None:
        pause = min(self._slot_seconds() / TRIES, PAUSE_SECONDS_MAX)
        self._host.call_later(pause, self._tick)

    def _slot_seconds(self) -> float:
        return self._period / max(len(self._cluster.partitions), 1)

    def _tick(self) -> None:
        self._plan()
        slot = int(self._host.time() // self._slot_seconds())
        if slot != self._slot and self._free():
            self._slot = slot
            partition = slot % len(self._cluster.partitions)
            self._checks.scrub(partition, partial(self._ended, partition))

    def _free(self) -> bool:
        """Return whether nothing runs that a comparison disturbs, or that disturbs it."""
        cluster = self._cluster
        if cluster.state not in (ClusterState.RUNNING, ClusterState.BACKINGUP):
            return False
        if self._checks.running or self._checks.scrubbing or self._packs.running:
            return False
        # Cells of nodes that are away do not count, because they may wait for days.
        return not any(
            state in (CellState.OUT_OF_DATE, CellState.FEEDING) and nid in cluster.ready
            for row in cluster.partitions.rows
            for nid, state in row.items()
        )

    def _ended(self, partition: int, finding: Finding) -> None:
        if finding is Finding.FAILED:
            self._slot = None
            return
        self._compared.add(partition)
        if len(self._compared) >= len(self._cluster.partitions):
            self._compared.clear()
            self._round_end = self._host.time()

    def report(self) -> AnswerScrub:
        """Return the progress of the current round."""
        return AnswerScrub(self._period, self._begun, self._round_end, len(self._compared))
