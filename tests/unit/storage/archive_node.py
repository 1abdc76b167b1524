"""A storage node that executes the steps of ``backup`` and ``restore``, wholly or half."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from neo.archive.room import Disk
from neo.node.task import Cancelled, Task
from neo.operations.model import Operation, Step
from neo.protocol.ids import p64
from neo.storage.operations.backup import COPY, LOOK, MANIFEST, steps_of_backup
from neo.storage.operations.restore import CHECK, LOAD, steps_of_restore
from neo.storage.operations.worker import InlineWorker
from tests.unit.storage.world import World


class Broken(Exception):
    """The process dies here."""


class FlakyWorker(InlineWorker):
    """Dies at a call."""

    def __init__(self) -> None:
        self.left = 1_000_000
        self.calls = 0
        self.free = 0

    async def disk(self, path: Path) -> Disk | None:
        return Disk(self.free, 1 << 40, "a disk")

    def call(self, function: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls > self.left:
            raise Broken
        return super().call(function)


class ArchiveNode:
    """The steps of a node. ``last``: the tid of the copy. ``partitions``: of its cluster."""

    def __init__(self, world: World, path: Path, last: int, partitions: int) -> None:
        self.world = world
        self.worker = FlakyWorker()
        core, blobs = world.core, world.core.blobs
        where = core.database, core.cluster, core.cells
        self.functions = steps_of_backup(
            *where, core.locks, core.background, blobs.contents, self.worker
        ) | steps_of_restore(*where, core.background, blobs.contents, self.worker)
        self.order = {
            "path": str(path),
            "full": False,
            "tid": p64(last).hex(),
            "pack": p64(0).hex(),
            "partitions": partitions,
            "readers": [1] * partitions,
        }
        self.wanted = {"path": str(path), "tid": "", "partitions": partitions}
        self.context: dict[tuple[int, int], bytes] = {}

    def operation(self, name: str) -> Operation:
        values = self.wanted if name in (CHECK, LOAD) else self.order
        step = Step(name, (1,), True, True)
        return Operation(7, "x", values, 1, (step,), (), 0.0, 1.0, True)

    def run(self, name: str) -> bytes:
        number = {LOOK: 0, COPY: 1, MANIFEST: 2, CHECK: 0, LOAD: 1}[name]
        task = Task(
            self.functions[name].run(
                self.operation(name), number, self.context, lambda done, text: None
            )
        )
        self.world.wait(lambda: task.done, f"{name} does not end")
        told: bytes = task.result()
        self.context[number, 1] = told
        return told

    def undo(self, name: str) -> None:
        told = {number: data for (number, _), data in self.context.items()}
        operation = self.operation(name)
        undo = self.functions[name].prepare(operation, told)
        task = Task(self.functions[name].undo(operation, undo))
        self.world.wait(lambda: task.done, f"{name} is not undone")
        task.result()

    def half(self, name: str, calls: int) -> bool:
        """Run a step that dies after some calls. Return whether it was over before."""
        self.worker.calls, self.worker.left = 0, calls
        try:
            self.run(name)
        except (Broken, Cancelled):
            return False
        finally:
            self.worker.left = 1_000_000
        return True
