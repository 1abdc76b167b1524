"""Until when a synchronous backup was in sync, also after its processes were started again (specification
25.68).

If the upstream cluster is lost, this decides whether to take over. So the storage nodes remember it, as
they remember up to what their cells are complete.
"""

from __future__ import annotations

import math

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.protocol.packets import FEATURE_OURS, NotifyInSync, SyncRow

#: While a backup is in sync, its storage nodes write the time once in this period.
WRITE_SECONDS = 1.0


class SyncMemory:
    """``until``: seconds since 1970, None if this cluster is not known to have been in sync."""

    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core
        self.until: float | None = None
        self._written = -math.inf

    def heard(self, until: object) -> None:
        """Take what a storage node remembers (``sync_until`` in its RequestIdentification)."""
        if isinstance(until, float) and math.isfinite(until):
            self.until = until if self.until is None else max(self.until, until)

    def note(self, seconds: float, ended: bool = False) -> None:
        """Note that the backup was in sync ``seconds`` ago. ``ended``: it is no more."""
        self.until = self._core.host.time() - seconds
        now = self._core.host.monotonic()
        if ended or now - self._written >= WRITE_SECONDS:
            self._written = now
            for peer in self._cluster.storages():
                if peer.node is not None and FEATURE_OURS in peer.node.features:
                    peer.send(NotifyInSync(self.until))

    def forget(self) -> None:
        """Forget it: this cluster is no standby any more."""
        self.until = None

    def row(self, upstream: str) -> SyncRow:
        """Return the row of this cluster while it does not serve."""
        now, until = self._core.host.time(), self.until
        reason = f"this cluster is {self._cluster.state.name}"
        if until is None:
            reason += ": its storage nodes know whether it was in sync, and until when"
        seconds = None if until is None else max(0.0, now - until)
        return (upstream, "async", now if until is None else until, None, seconds, reason)
