"""Events to which the parts of a storage node react.

The node tells all its parts of an event, in the order of ``StorageNode.parts``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class CellsChanged(NamedTuple):
    """A change of own cells. ``unreadable``: the changed cells that are not readable now. ``dropped``:
    whether cells were taken away, so that their data can be erased."""

    unreadable: Sequence[int]
    dropped: bool


class Part:
    """A component of the storage node. It ignores the events whose method it does not override."""

    def operation_started(self) -> None:
        """React to StartOperation; the own cells are those of the partition table."""

    def cells_changed(self, change: CellsChanged) -> None:
        """React to a new partition table, or a change of it, while the node is operational."""

    def client_lost(self, nid: int) -> None:
        """React to the news that the master lost a client."""

    def operation_stopped(self) -> None:
        """Forget what belonged to the operation: StopOperation came, or the master was lost."""
