"""Steps of ``neoctl replace``, ``add`` and ``remove`` on nodes that get cells (specification 27.74).

Replication copies the cells, as it copies any other cell. These steps end when the copy is complete. They
are in the journal of the node, so that the operation survives the loss of the master.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from neo.node.core import Core
from neo.operations.model import Operation
from neo.protocol.enums import CellState
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.operations.steps import Context, Report, StepFailed, StepFunction
from neo.topology.cell_texts import Cell, decode_cells

READY, COPY = "get ready", "copy the cells"
#: Period in which the cells are looked at: a person sees the progress.
LOOK_SECONDS = 0.5


class Ready:
    """Does nothing: it is in the journal before a cell is given."""

    local = ""

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return b""

    async def run(
        self, operation: Operation, step: int, context: Context, report: Report
    ) -> bytes:
        return b""

    async def undo(self, operation: Operation, undo: bytes) -> None:
        """Nothing was changed."""


class Copied:
    """Waits until the cells that this node gets are complete."""

    local = ""

    def __init__(self, core: Core, cluster: Cluster, cells: Cells) -> None:
        self._core = core
        self._cluster = cluster
        self._cells = cells

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return b""

    async def run(
        self, operation: Operation, step: int, context: Context, report: Report
    ) -> bytes:
        partitions = [p for p, nid in gains_of(operation) if nid == self._cluster.nid]
        while True:
            states = [self._cells.state(partition) for partition in partitions]
            complete = sum(state is CellState.UP_TO_DATE for state in states)
            if complete == len(partitions):
                return b""
            report(complete / len(partitions), f"{complete} of {len(partitions)} partitions are here")
            await self._core.sleep(LOOK_SECONDS)

    async def undo(self, operation: Operation, undo: bytes) -> None:
        """The master takes the cells away."""


def gains_of(operation: Operation) -> list[Cell]:
    """Return the cells that nodes get. Raise StepFailed."""
    try:
        return decode_cells(msgspec.convert(operation.arguments.get("gains"), str))
    except ValueError as e:
        raise StepFailed(
            f"the order cannot be read ({e}): install the same release everywhere"
        ) from None


def steps_of_moves(core: Core, cluster: Cluster, cells: Cells) -> dict[str, StepFunction]:
    """Return the functions of the steps, by name."""
    return {READY: Ready(), COPY: Copied(core, cluster, cells)}
