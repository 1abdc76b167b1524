"""The journal of operations in the memory backend, like :mod:`neo.storage.backend.operations` for SQL."""

from __future__ import annotations

from neo.storage.backend.api import JournalStep
from tests.simulator.memory_blobs import MemoryBlobs


class MemoryOperations(MemoryBlobs):
    def journal(self) -> dict[int, tuple[bytes, list[JournalStep]]]:
        self.drain()
        found: dict[int, tuple[bytes, list[JournalStep]]] = {
            id: (body, []) for id, body in sorted(self.memory.operation.values())
        }
        for id, step, state, undo, context in sorted(self.memory.operation_step.values()):
            found[id][1].append(JournalStep(step, state, undo, context))
        return found

    def begin_operation(self, id: int, body: bytes) -> None:
        self._write(self.memory.operation.put, id, (id, body))

    def write_step(self, id: int, step: JournalStep) -> None:
        self._write(self.memory.operation_step.put, (id, step.step), (id, *step))

    def forget_operation(self, id: int) -> None:
        self._write(self._forget_operation, id)

    def _forget_operation(self, id: int) -> None:
        tables = self.memory
        if id in tables.operation:
            tables.operation.remove(id)
        for key in [key for key in tables.operation_step if key[0] == id]:
            tables.operation_step.remove(key)
