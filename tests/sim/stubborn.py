"""A step of an operation whose undo fails until a test mends the node."""

from __future__ import annotations

from collections.abc import Mapping

from neo.operations.model import Operation
from neo.storage.operations.steps import Context, Report, StepFailed


class Stubborn:
    """Implements StepFunction. The step fails; its undo fails until ``mended`` is set."""

    local = ""

    def __init__(self) -> None:
        self.mended = False

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return b""

    async def run(self, operation: Operation, step: int, context: Context, report: Report) -> bytes:
        raise StepFailed("its disk is away")

    async def undo(self, operation: Operation, undo: bytes) -> None:
        if not self.mended:
            raise StepFailed("its disk is away")
