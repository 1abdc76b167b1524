"""What disks of simulated machines need of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from neo.net.fault_sites import FaultSite


class DiskHost(Protocol):
    """The part of a process's host that a disk uses."""

    def from_thread(self, callback: Callable[..., None], *args: object) -> object: ...


class FaultyHost(DiskHost, Protocol):
    """The host of a node, which is asked at fault sites."""

    def fault(self, site: FaultSite) -> bool: ...
