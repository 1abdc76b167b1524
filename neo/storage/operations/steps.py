"""The functions of steps, and how they are executed: each run, and each undo, is a task of the node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from neo.node.core import Core
from neo.node.task import Cancelled, Task
from neo.operations.model import Operation
from neo.storage.backend.api import BackendFailure
from neo.storage.operations.local_locks import LocalLocks

logger = logging.getLogger("neo.storage")

#: The results of the earlier steps, by step and node.
Context = Mapping[tuple[int, int], bytes]
#: Reports the progress of a step, from 0 to 1, and what the step does.
Report = Callable[[float, str], None]


class StepFailed(Exception):
    """A step, or its undo, is not possible on this node; the message says why and what to do."""


class StepFunction(Protocol):
    """``run`` and ``undo`` may be executed several times, and ``undo`` also after half a ``run``. All
    raise StepFailed. ``local`` names the data of this node that the step changes: runs and undos with the
    same name wait for each other; "" if it changes none."""

    @property
    def local(self) -> str: ...

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        """Return the data that the undo needs. Called before the first run; must not wait for a disk.
        ``told``: the results of the earlier steps on this node."""

    async def run(self, operation: Operation, step: int, context: Context, report: Report) -> bytes:
        """Execute the step. Return its result for the steps that follow."""

    async def undo(self, operation: Operation, undo: bytes) -> None:
        """Undo the step. ``undo``: what :meth:`prepare` returned."""


class Ends(Protocol):
    """The callbacks of the engine at the end of a step."""

    def finished(self, now: float, id: int, step: int, context: bytes) -> None: ...

    def undone(self, now: float, id: int, step: int) -> None: ...

    def failed(self, now: float, id: int, step: int, why: str) -> None: ...

    def progress(self, now: float, id: int, step: int, done: float, text: str) -> None: ...


class StepRunner:
    """Implements :class:`neo.operations.engine.Steps`. ``functions``: by the names of steps. ``ends`` is
    set when the engine is made."""

    def __init__(self, core: Core, functions: Mapping[str, StepFunction]) -> None:
        self._core = core
        self._functions = dict(functions)
        self._tasks: dict[tuple[int, int], Task[None]] = {}
        self._locks = LocalLocks()
        self.ends: Ends | None = None

    def register(self, name: str, function: StepFunction) -> None:
        self._functions[name] = function

    def prepare(self, operation: Operation, step: int, told: dict[int, bytes]) -> bytes:
        """Raise ValueError if this node does not know the step."""
        name = operation.steps[step].name
        if name not in self._functions:
            raise ValueError(
                f"this node does not know step {name!r}: install the same release everywhere"
            )
        try:
            return self._functions[name].prepare(operation, told)
        except StepFailed as e:
            raise ValueError(str(e)) from None

    def run(
        self, operation: Operation, step: int, undo: bytes, context: dict[tuple[int, int], bytes]
    ) -> None:
        self._spawn(operation, step, undo, context)

    def undo(self, operation: Operation, step: int, undo: bytes) -> None:
        self._spawn(operation, step, undo, None)

    def cancel(self, operation: Operation, step: int) -> None:
        if (task := self._tasks.pop((operation.id, step), None)) is not None:
            task.cancel()

    def _spawn(
        self, operation: Operation, step: int, undo: bytes, context: Context | None
    ) -> None:
        job = self._execute(operation, step, undo, context)
        self._tasks[operation.id, step] = self._core.spawn(job)

    async def _execute(
        self, operation: Operation, step: int, undo: bytes, context: Context | None
    ) -> None:
        """Run a step, or undo it if ``context`` is None."""
        await self._core.sleep(0)  # called back later, as from other threads
        ends, key = self.ends, (operation.id, step)
        assert ends is not None
        function = self._functions[operation.steps[step].name]

        def report(done: float, text: str) -> None:
            ends.progress(self._now(), *key, done, text)

        try:
            if function.local:
                await self._locks.take(function.local)
            try:
                if context is None:
                    await function.undo(operation, undo)
                    told = b""
                else:
                    told = await function.run(operation, step, context, report)
            finally:
                if function.local:
                    self._locks.give(function.local)
        except (BackendFailure, Cancelled):
            raise
        except (StepFailed, OSError) as e:
            why = str(e)
        except Exception as e:
            # A bug in a step must not end the node.
            logger.exception("step %r of operation %s", operation.steps[step].name, operation.id)
            why = f"internal failure: {e}; see the log of the node"
        else:
            self._tasks.pop(key, None)
            if context is None:
                ends.undone(self._now(), *key)
            else:
                ends.finished(self._now(), *key, told)
            return
        logger.warning("step %r of operation %s: %s", operation.steps[step].name, operation.id, why)
        self._tasks.pop(key, None)
        ends.failed(self._now(), *key, why)

    def _now(self) -> float:
        return self._core.host.monotonic()
