"""Failure detector for storage nodes, run by a primary that was elected: declares silent nodes down.

A commit waits for all nodes of its partitions. Without this, a commit would wait until TCP gives up for a
node whose machine vanished, or that is cut off from the primary only. Such a node has left this primary
long before, because storage nodes watch their primary, too (:mod:`neo.node.bootstrap`). The others go on
without the node, and it catches up later (decision 25).

A node is declared down only if others can replace it now. The last readable copy of a partition is never
given up. Neither is one of two copies if the other one has not answered for half as long, because then
the network, or this master, is slow. Nodes of other implementations may be busy for longer; only TCP
declares them down.
"""

from __future__ import annotations

from neo.master.cluster import Cluster
from neo.master.states import SERVING
from neo.node.core import Core
from neo.node.liveness import LOOK_SECONDS, Pulse

#: Twice the time after which a storage node gives up its primary, because its disk may hold it up.
SILENCE_SECONDS = 5.0


class FailureDetector:
    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core
        self._pulses: dict[int, Pulse] = {}

    def tick(self) -> None:
        """Check all storage nodes. Call once; it reschedules itself."""
        cluster, before, self._pulses = self._cluster, self._pulses, {}
        silent: list[Pulse] = []
        doubtful: set[int] = set()
        for peer in cluster.storages() if cluster.state in SERVING else ():
            assert peer.node is not None and peer.node.nid is not None
            if not peer.node.features:
                continue
            pulse = before.get(peer.node.nid)
            if pulse is None or pulse.peer is not peer:
                pulse = Pulse(peer)
            self._pulses[peer.node.nid] = pulse
            seconds = pulse.look()
            if seconds > SILENCE_SECONDS / 2:
                doubtful.add(peer.node.nid)
            if seconds > SILENCE_SECONDS:
                silent.append(pulse)
        if silent and self._dispensable(doubtful):
            for pulse in silent:
                pulse.peer.lost("it does not answer, and others have all that it has")
        self._core.call_later(LOOK_SECONDS, self.tick)

    def _dispensable(self, nids: set[int]) -> bool:
        cluster = self._cluster
        others = cluster.running_storages() - nids
        return cluster.operational_without(nids) and cluster.published.missing(others) is None
