"""Another number of partitions in the memory backend, like :mod:`neo.storage.backend.regrouped` for SQL.

The rows have no second copy here: they are regrouped when the number is switched."""

from __future__ import annotations

from neo.storage.backend.api import Place
from neo.storage.backend.regrouped import REGROUPED, REGROUPING
from neo.storage.backend.tables import regrouped_cells
from tests.simulator.memory_operations import MemoryOperations


class MemoryRegrouped(MemoryOperations):
    def regrouped(self) -> int | None:
        count = self._config.get(REGROUPED)
        return None if count is None else int(count)

    def begin_regrouping(self, partitions: int) -> str:
        self.set_config(REGROUPED, None)
        self.set_config(REGROUPING, str(partitions))
        return ""

    def regroup(self, after: Place, length: int) -> Place | None:
        number, partition, _, _ = after
        if number < 2:
            following = partition + 1 < self._modulo
            return (number, partition + 1, -1, -1) if following else (number + 1, 0, -1, -1)
        self.set_config(REGROUPED, self._config.get(REGROUPING))
        self.set_config(REGROUPING, None)
        return None

    def switch_partitions(self, partitions: int) -> None:
        before = self._modulo
        self.drain()
        self._write(self.memory.regroup, partitions)
        cells, self._cells = self._cells, {}
        for cell in cells:
            self._write(self.memory.pt.remove, cell)
        for cell, tid in regrouped_cells(cells, before, partitions).items():
            self._set_cell(cell, tid)
        self._modulo = partitions
        self.set_config(REGROUPED, str(before))

    def drop_regrouped(self, length: int) -> bool:
        self.set_config(REGROUPED, None)
        self.set_config(REGROUPING, None)
        return True
