"""The step of ``neoctl upgrade``: a storage node begins anew with the release that is installed
(specification 27.81)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from neo.node.task import Future
from neo.operations.model import Operation
from neo.storage.operations.steps import Context, Report, StepFailed, StepFunction

RESTART = "begin anew"


class BeginAnew:
    """A step that was begun by an earlier process is done: this is the next one. ``shared``: other nodes
    run in this process."""

    local = ""

    def __init__(self, renew: Callable[[], None], shared: bool = False) -> None:
        self._renew = renew
        self._shared = shared
        #: Operations whose step was begun by this process. At most one for each lock.
        self._begun: set[int] = set()

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        if self._shared:
            raise StepFailed(
                "this node shares its process with others, which would begin anew, too: start that"
                " process again instead"
            )
        self._begun.add(operation.id)
        return b""

    async def run(
        self, operation: Operation, step: int, context: Context, report: Report
    ) -> bytes:
        if operation.id in self._begun:
            self._renew()
            await Future[None]()  # this process ends
        return b""

    async def undo(self, operation: Operation, undo: bytes) -> None:
        """A release that was replaced is not there any more."""


def steps_of_upgrade(renew: Callable[[], None], shared: bool) -> dict[str, StepFunction]:
    """Return the functions of the steps, by name."""
    return {RESTART: BeginAnew(renew, shared)}
