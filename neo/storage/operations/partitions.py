"""The step of ``neoctl set partitions``: rows are kept for another number of partitions, too."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from neo.operations.model import Operation
from neo.storage.backend.api import FIRST_PLACE, Place
from neo.storage.background import Background
from neo.storage.database import Database
from neo.storage.maintenance.cleanup import drop_regrouped
from neo.storage.operations.local_locks import ROWS
from neo.storage.operations.steps import Context, Report, StepFailed, StepFunction

REGROUP = "regroup the rows"
#: Rows of a step while no client is active. No request is served during a step.
STEP_LENGTH = 500
#: Period in which a node looks whether it has a partition table.
LOOK_SECONDS = 0.5


class Regroups:
    """Copies the rows by the new number, and keeps both up to date."""

    local = ROWS

    def __init__(self, database: Database, background: Background) -> None:
        self._database = database
        self._background = background

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return b""

    async def run(
        self, operation: Operation, step: int, context: Context, report: Report
    ) -> bytes:
        backend, background, after = self._database.backend, self._background, _after(operation)
        while not backend.tables.partition_count():
            await background.sleep(LOOK_SECONDS)  # the first table is on its way
        if after in (backend.tables.partition_count(), backend.regrouping.regrouped()):
            return b""
        await drop_regrouped(self._database, background, lambda: False)
        if why := backend.regrouping.begin_regrouping(after):
            raise StepFailed(why)
        place: Place | None = FIRST_PLACE
        while place is not None:
            began = background.monotonic()
            table, partition, _, _ = place
            before = backend.tables.partition_count()
            rows = "objects" if table == 0 else "transactions"
            report(
                min(1.0, (table + partition / before) / 2), f"{rows} of partition {partition} of {before}"
            )
            place = backend.regrouping.regroup(place, background.rows(STEP_LENGTH))
            await self._database.stored()
            await background.give_way(began)
        return b""

    async def undo(self, operation: Operation, undo: bytes) -> None:
        """Keep the rows: the master may have switched, or a table of the new number may come from
        another node. When the operation is over everywhere,
        :class:`~neo.storage.maintenance.cleanup.Eraser` deletes those that are not in use."""


def _after(operation: Operation) -> int:
    """Return the new number of partitions. Raise StepFailed."""
    try:
        return msgspec.convert(operation.arguments.get("partitions"), int)
    except ValueError as e:
        raise StepFailed(
            f"the order cannot be read ({e}): install the same release everywhere"
        ) from None


def steps_of_partitions(database: Database, background: Background) -> dict[str, StepFunction]:
    """Return the functions of the steps, by name."""
    return {REGROUP: Regroups(database, background)}
