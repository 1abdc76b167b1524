"""``neoctl set partitions``: another number of partitions, while applications work (specification 27.90).

Theory of operation
-------------------
Each storage node first copies its rows by the new number, and from then on writes each change twice. So
it can work with either number, and the *switch* takes no longer than a restart of the cluster: the master
lets no transaction begin, waits until none is open, and goes back to RECOVERING. There it makes the
partition table of the same cells for the new number, and storage nodes that are told of it use the rows
that belong to it. The way back is another switch, so the operation can fail at any time without a loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from neo.master.cluster import Cluster
from neo.master.commit.sync_backups import SyncBackups
from neo.master.maintenance.pack import Packs
from neo.master.operations.kinds import MONTH_SECONDS, Steps
from neo.master.operations.storage_nodes import StorageNodes
from neo.master.operations.waiting import LONG_SECONDS, Open, why_not_idle, why_not_ready
from neo.master.parts import Operation as Phases
from neo.node.core import Core
from neo.operations.initiator import Refused
from neo.operations.model import INITIATOR, Operation, Step
from neo.protocol.enums import ClusterState
from neo.topology.partitions import MAX_PARTITIONS, PartitionTable

REGROUP, SWITCH = "regroup the rows", "switch"

#: How long transactions may be kept from beginning. Longer ones than this are rare; if one is open all
#: the time, the switch waits for a better moment.
HOLD_SECONDS = 5.0
#: Pause before transactions are held up again.
PAUSE_SECONDS = 30.0


class Commits(Protocol):
    """The transactions of the cluster."""

    @property
    def prepared_count(self) -> int:
        """How many transactions wait for the decision of their coordinators."""

    def under_way(self) -> Sequence[Open]:
        """Return the open transactions, without the prepared ones."""

    def hold(self) -> bool:
        """Let no transaction begin; return whether none is open."""

    def release(self) -> None:
        """Let transactions begin again."""


class _Order(msgspec.Struct, frozen=True):
    """The arguments of the operation (specification 27.91)."""

    partitions: int
    before: int


class SwitchesPartitions:
    """Implements OwnSteps. Methods raise ValueError if the arguments cannot be read."""

    def __init__(self, cluster: Cluster, core: Core, commits: Commits, phases: Phases) -> None:
        self._cluster = cluster
        self._core = core
        self._commits = commits
        self._phases = phases
        #: Since when transactions are held up; when they may be again.
        self._since: float | None = None
        self._again = 0.0
        #: The operation that waits, since when, and for what it did when its try ended.
        self._waiting: tuple[int, float] | None = None
        self._tried = ""

    def run(self, operation: Operation, step: int) -> bool:
        return self._has(_order(operation).partitions)

    def undo(self, operation: Operation, step: int) -> bool:
        return self._has(_order(operation).before)

    def finish(self, operation: Operation) -> bool:
        return True

    def waits(self, operation: Operation, step: int) -> str:
        commits, now = self._commits, self._core.host.monotonic()
        if self._waiting is None or self._waiting[0] != operation.id:
            self._waiting = operation.id, now
        text = why_not_ready(self._cluster)
        if not text:
            text = why_not_idle(commits.prepared_count, commits.under_way(), now)
        if not text and now < self._again:
            text = self._tried
        seconds = now - self._waiting[1]
        if not text or seconds < LONG_SECONDS:
            return text
        return f"{text}; it has waited for {seconds / 60:.0f} min"

    def _has(self, partitions: int) -> bool:
        """Return whether the table has this number of partitions; if not, switch as soon as possible."""
        cluster, now = self._cluster, self._core.host.monotonic()
        if cluster.state is not ClusterState.RUNNING:
            self._since = None
            return False
        if len(cluster.partitions) == partitions:
            self._release()
            return cluster.published.complete
        if not self._all_work() or self._commits.prepared_count:
            self._release()
        elif now >= self._again:
            self._hold(now, partitions)
        return False

    def _all_work(self) -> bool:
        """Return whether all nodes have their data, and another table can be sent to them."""
        cluster = self._cluster
        complete = cluster.partitions.whole() and cluster.published.complete
        return complete and not cluster.starting and cluster.partitions.nodes() <= cluster.ready

    def _hold(self, now: float, partitions: int) -> None:
        if self._since is None:
            self._since = now
        if self._commits.hold():
            self._since = None
            reason = f"there will be {partitions} partitions"
            self._phases.back_to_recovery(reason, asked=True, partitions=partitions)
        elif now - self._since > HOLD_SECONDS:
            self._tried = why_not_idle(0, self._commits.under_way(), now)
            self._release()
            self._again = now + PAUSE_SECONDS

    def _release(self) -> None:
        if self._since is not None:
            self._since = None
            self._commits.release()


def _order(operation: Operation) -> _Order:
    return msgspec.convert(operation.arguments, _Order)


class Partitions:
    """Implements Kind. No pack and no move of cells runs meanwhile."""

    locks = ("history", "table")
    resumable = True

    def __init__(
        self,
        cluster: Cluster,
        nodes: StorageNodes,
        packs: Packs,
        own: SwitchesPartitions,
        backups: SyncBackups,
    ) -> None:
        """``backups``: the synchronous backups of this cluster."""
        self._cluster = cluster
        self._nodes = nodes
        self._packs = packs
        self.own = own
        self._backups = backups

    def plan(self, arguments: Mapping[str, Any]) -> Steps:
        after, table = arguments.get("partitions"), self._cluster.partitions
        if type(after) is not int or not 1 <= after <= MAX_PARTITIONS:
            raise Refused(f"the number of partitions must be from 1 to {MAX_PARTITIONS}, not {after!r}")
        self._check()
        if after == len(table):
            raise Refused(f"there are {after} partitions already")
        made = PartitionTable()
        made.load(table.ptid, table.replicas, table.row_list())
        made.regroup(after)
        if any(len(row) <= table.replicas for row in made.rows):
            raise Refused(
                f"{after} is no multiple of {len(table)}, and no {table.replicas + 1} nodes have all that"
                f" would be in one partition: choose a multiple of {len(table)}"
            )
        steps = (
            Step(REGROUP, tuple(sorted(table.nodes())), True, True),
            Step(SWITCH, (INITIATOR,), True, True),
        )
        return Steps({"partitions": after, "before": len(table)}, steps, MONTH_SECONDS)

    def _check(self) -> None:
        """Raise Refused unless the state of the cluster allows the operation."""
        cluster = self._cluster
        if cluster.state is not ClusterState.RUNNING:
            raise Refused(f"the cluster must be RUNNING, it is {cluster.state.name}")
        self._nodes.check_complete([])
        if self._packs.running:
            raise Refused("the database is being packed: try again when that is over")
        if self._backups.configured:
            raise Refused(
                "synchronous standbys copy partition by partition, and need the same number: take them"
                " out of sync_backups, and make them anew afterwards"
            )
