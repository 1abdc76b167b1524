"""``neoctl upgrade``: storage nodes begin anew with the release that is installed, one after the other
(specification 27.80 to 27.83)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neo.master.cluster import Cluster
from neo.master.operations.kinds import MONTH_SECONDS, Steps
from neo.master.operations.storage_nodes import StorageNodes, listed
from neo.operations.initiator import Refused
from neo.operations.model import INITIATOR, STEPS_MAX, Operation, Step
from neo.protocol.enums import CellState
from neo.protocol.ids import format_nid, format_nids

RESTART, WAIT = "begin anew", "wait until it is up to date"


class Waits:
    """Implements OwnSteps: the next node begins anew when the one before has all data again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def run(self, operation: Operation, step: int) -> bool:
        cluster = self._cluster
        (nid,) = operation.steps[step - 1].peers
        rows = cluster.partitions.rows
        complete = all(
            rows[partition][nid] is CellState.UP_TO_DATE for partition in cluster.partitions.assigned(nid)
        )
        return nid in cluster.ready and complete and cluster.published.complete

    def undo(self, operation: Operation, step: int) -> bool:
        return True

    def finish(self, operation: Operation) -> bool:
        return True

    def waits(self, operation: Operation, step: int) -> str:
        return f"{format_nids(operation.steps[step - 1].peers)} must be ready, with all cells UP_TO_DATE"


class Upgrade:
    """Plans an upgrade. Nothing is undone: nodes that have begun anew stay so."""

    def __init__(self, cluster: Cluster, nodes: StorageNodes) -> None:
        self._cluster = cluster
        self._nodes = nodes

    def plan(self, arguments: Mapping[str, Any]) -> Steps:
        """Raise Refused."""
        cluster = self._cluster
        self._nodes.check_complete([])
        nids = listed(arguments) if arguments.get("nodes") else sorted(cluster.ready)
        if 2 * len(nids) > STEPS_MAX:
            raise Refused(f"name at most {STEPS_MAX // 2} nodes at once")
        for nid in nids:
            self._nodes.check_known(nid)
            if nid not in cluster.ready:
                raise Refused(f"{format_nid(nid)} does not operate: neoctl status")
            if not cluster.operational_without([nid]):
                raise Refused(
                    f"without {format_nid(nid)} some partitions cannot be read, and applications would"
                    " wait: stop the cluster, and start all nodes anew"
                )
        steps = [
            step
            for nid in nids
            for step in (Step(RESTART, (nid,), True, False), Step(WAIT, (INITIATOR,), True, False))
        ]
        return Steps({"nodes": format_nids(nids)}, tuple(steps), MONTH_SECONDS)
