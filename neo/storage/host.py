"""What a storage node needs of its process besides what all nodes need."""

from __future__ import annotations

from typing import Protocol

from neo.node.host import Host


class StorageHost(Host, Protocol):
    """What a storage node needs more: to be made again when its database failed."""

    def restart(self, why: str) -> None:
        """The core is dead: make another one after a pause, longer after each failure in a row.
        ``why``: for people, and for everybody who connects meanwhile."""

    def healthy(self) -> None:
        """The core works: the next failure is a new one."""
