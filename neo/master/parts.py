"""The events of a cluster that the parts of its primary master react to."""

from __future__ import annotations

from typing import Protocol

from neo.protocol.packets import CellChange


class Part(Protocol):
    """A component of the primary master. Each event reaches all parts, in the order of ``primary.py``."""

    def storage_lost(self, nid: int) -> None:
        """React to the end of the connection with a storage node, which is DOWN or forgotten now."""

    def cells_changed(self, ptid: int, changes: list[CellChange]) -> None:
        """React to version ``ptid`` of the partition table, which was just sent to all nodes."""

    def table_confirmed(self) -> None:
        """React to a storage node, or the log, that made a published partition table durable."""

    def operation_stopped(self) -> None:
        """React to the return to RECOVERING: forget what was under way."""


class Operation(Protocol):
    """The primary master, as its parts use it."""

    def back_to_recovery(
        self, reason: str, asked: bool = False, partitions: int | None = None
    ) -> None:
        """Stop the operation and start it again from RECOVERING, unless that is under way. ``asked``: the
        operator gave a command that needs it. ``partitions``: their number from now on; None: as it
        is."""
