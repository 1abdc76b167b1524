"""Tables ``operation`` and ``operation_step``: the journal of operations (specification 27.1).

The rows are mirrored in memory: few nodes have more than one operation at a time, and a node tells the
master of them each time it joins.
"""

from __future__ import annotations

from neo.storage.backend.api import JournalStep
from neo.storage.backend.sql import Engine

_BEGIN = "REPLACE INTO operation (id, body) VALUES (?, ?)"
_STEP = "REPLACE INTO operation_step (id, step, state, undo_data, context) VALUES (?, ?, ?, ?, ?)"


class OperationTables:
    def __init__(self, engine: Engine) -> None:
        self._read = engine.read
        self._write = engine.write
        self._bodies: dict[int, bytes] = {}
        self._steps: dict[int, dict[int, JournalStep]] = {}

    def load(self) -> None:
        """Read the tables."""
        self._bodies = {int(id): body for id, body in self._read("SELECT id, body FROM operation")}
        self._steps = {id: {} for id in self._bodies}
        for id, *row in self._read("SELECT id, step, state, undo_data, context FROM operation_step"):
            step = JournalStep(*row)
            if id in self._steps:
                self._steps[id][step.step] = step

    def journal(self) -> dict[int, tuple[bytes, list[JournalStep]]]:
        return {
            id: (body, [step for _, step in sorted(self._steps[id].items())])
            for id, body in sorted(self._bodies.items())
        }

    def begin_operation(self, id: int, body: bytes) -> None:
        self._bodies[id] = body
        self._steps.setdefault(id, {})
        self._write(_BEGIN, id, body)

    def write_step(self, id: int, step: JournalStep) -> None:
        self._steps[id][step.step] = step
        self._write(_STEP, id, *step)

    def forget_operation(self, id: int) -> None:
        if self._bodies.pop(id, None) is not None:
            del self._steps[id]
            self._write("DELETE FROM operation_step WHERE id=?", id)
            self._write("DELETE FROM operation WHERE id=?", id)
