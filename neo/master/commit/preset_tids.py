"""Tids that a client imposes a second time (IStorageRestoreable), after their transaction was aborted.

If a client imposes the tid of a transaction, the ttid is the same. A copy that goes on after a failure
imposes it again. Messages about the former transaction, that it is aborted or that its client is lost,
could then reach a storage node after votes of the new one, which come by another connection. So the
second transaction waits until all storage nodes know how the first one ended.
"""

from __future__ import annotations

from functools import partial

from neo.master.cluster import Cluster
from neo.node.peer import Peer
from neo.protocol.packets import FEATURE_CHAINS, NotifyPresetEnded


class PresetTids:
    """Bound: storage nodes times transactions with imposed tids that were aborted just now."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Nodes that may not know the end yet, by tid.
        self._waiting: dict[bytes, set[Peer]] = {}

    def aborted(self, tid: bytes) -> None:
        """Wait until the storage nodes know an abort. Call when all of them were told."""
        waiting = self._waiting.setdefault(tid, set())
        peers = self._cluster.storages()
        waiting.update(peers)
        for peer in peers:
            if peer.node is not None and FEATURE_CHAINS in peer.node.features:
                peer.send(NotifyPresetEnded(tid))
            self._cluster.when_durable(peer, partial(self._heard, tid, peer))

    def _heard(self, tid: bytes, peer: Peer, _: bool) -> None:
        # A node that was lost has dropped the transaction, too.
        waiting = self._waiting.get(tid, set())
        waiting.discard(peer)
        if not waiting and self._waiting.pop(tid, None) is not None:
            self._cluster.events.preset_tid_free()

    def ending(self, tid: bytes | None) -> bool:
        """Return whether a transaction must wait to impose this tid."""
        return tid in self._waiting
