"""A synchronous backup asks all nodes that it counts on whether they answer, before it joins
(specification 25.66).

A process that stands still keeps its connection, and what its node has looks complete. If the backup
joined with it, the transactions of the upstream cluster would wait for that node in vain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.errors import ConnectionLost
from neo.protocol.packets import Ping, Pong

#: Answers count for so long. A node that owes one for longer is named to operators.
ROLL_SECONDS = 1.0


class RollCall:
    """The call in progress. Bound: one pending question for each storage node."""

    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core
        self._called: set[int] = set()
        #: The connections of the nodes that have not answered, by nid.
        self._owing: dict[int, Peer] = {}
        self._begun = -math.inf

    @property
    def old(self) -> bool:
        """Whether the last roll call is so old that its answers do not count."""
        return self._core.host.monotonic() - self._begun > ROLL_SECONDS

    @property
    def late(self) -> Collection[int]:
        """The nodes that owe an answer for too long."""
        return sorted(self._owing) if self.old else ()

    def call(self, nids: Collection[int], complete: Callable[[], None]) -> None:
        """Ask these nodes, unless they are being asked. ``complete``: called when all have answered in
        ROLL_SECONDS."""
        connected = self._cluster.connected
        if self._owing and self._called == set(nids):
            if all(connected.get(nid) is peer for nid, peer in self._owing.items()):
                return
        self._called, self._begun = set(nids), self._core.host.monotonic()
        self._owing = {nid: connected[nid] for nid in nids if nid in connected}
        owing = self._owing
        if len(owing) == len(self._called):  # else the partition table changes
            for nid, peer in list(owing.items()):
                peer.ask(Ping()).then(partial(self._answered, owing, nid, complete))

    def forget(self) -> None:
        """End the call: it does not matter any more who answers."""
        self._owing = {}

    def _answered(
        self,
        owing: dict[int, Peer],
        nid: int,
        complete: Callable[[], None],
        answer: Future[Pong],
    ) -> None:
        try:
            answer.result()
        except ConnectionLost:
            return  # it is called again when the partition table has changed
        if owing is self._owing:
            del owing[nid]
            if not owing and not self.old:
                complete()
