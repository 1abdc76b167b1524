"""Tids that are imposed a second time (IStorageRestoreable), after their transaction was not committed.

The ttid of a transaction whose tid is imposed is this tid. A copy that goes on after a failure imposes it
again; what storage nodes are still to hear of the former transaction, that it is aborted or that its
client is lost, would then hit the new one, whose votes come by another connection. So the second one
waits until all storage nodes have heard the end of the first.
"""

from __future__ import annotations

from collections.abc import Callable

from neo.master.cluster import Cluster
from neo.node.peer import Peer


class PresetTids:
    """Bound: storage nodes times transactions that were aborted just now."""

    def __init__(self, cluster: Cluster, ended: Callable[[], None]) -> None:
        """``ended``: called when the end of such a transaction is known everywhere."""
        self._cluster = cluster
        self._ended = ended
        #: Nodes that may not have heard the end yet, by tid.
        self._waiting: dict[bytes, set[Peer]] = {}

    def aborted(self, tid: bytes) -> None:
        """Call when all storage nodes were told."""
        waiting = self._waiting.setdefault(tid, set())
        peers = self._cluster.storages()
        waiting.update(peers)
        for peer in peers:
            self._cluster.when_durable(peer, self._heard(tid, peer))

    def _heard(self, tid: bytes, peer: Peer) -> Callable[[bool], None]:
        def heard(_: bool) -> None:
            # A node that is lost forgets all transactions.
            waiting = self._waiting.get(tid, set())
            waiting.discard(peer)
            if not waiting and self._waiting.pop(tid, None) is not None:
                self._ended()

        return heard

    def ending(self, tid: bytes | None) -> bool:
        """Whether a transaction must wait to impose this tid."""
        return tid in self._waiting
