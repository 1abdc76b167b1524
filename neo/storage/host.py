"""The environment of a storage node."""

from __future__ import annotations

from typing import Protocol

from neo.node.host import Host


class StorageHost(Host, Protocol):
    """The host of a storage node: that of any node, and how to begin anew."""

    @property
    def shared(self) -> bool:
        """Whether something else runs in this process: other nodes, or an application."""

    def restart(self, why: str) -> None:
        """Replace the dead core after a pause, which grows with each failure in a row. ``why`` is logged,
        and sent to each peer that connects meanwhile."""

    def renew(self) -> None:
        """End this process, and begin it anew with the release that is installed now. The core has
        stopped."""

    def healthy(self) -> None:
        """Reset the pause of :meth:`restart`: the core works."""
