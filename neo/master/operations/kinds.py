"""The kinds of operations: how arguments become steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from neo.operations.initiator import OwnSteps
from neo.operations.model import Step

#: Terabytes take weeks; an operation that takes a month has lost a node that does not come back.
MONTH_SECONDS = 30 * 86400.0


class Steps(NamedTuple):
    """``arguments``: the operator's arguments, completed with the choices of the kind. ``seconds``:
    timeout, after which the operation fails. ``leaving``: nodes that the operation drops; these may be
    lost."""

    arguments: dict[str, Any]
    steps: tuple[Step, ...]
    seconds: float
    leaving: frozenset[int] = frozenset()


class Kind(Protocol):
    """``locks``: what the operation holds until its end. ``resumable``: the next primary goes on.
    ``own``: what the master itself does, None if it does nothing."""

    @property
    def locks(self) -> tuple[str, ...]: ...

    @property
    def resumable(self) -> bool: ...

    @property
    def own(self) -> OwnSteps | None: ...

    def plan(self, arguments: Mapping[str, Any]) -> Steps:
        """Return the steps in the cluster as it is now. Raise Refused."""


class TableKind:
    """Implements Kind: nothing else changes the partition table meanwhile, and the next primary goes on.
    ``plan``: of the kind."""

    locks = ("table",)
    resumable = True

    def __init__(self, plan: Callable[[Mapping[str, Any]], Steps], own: OwnSteps) -> None:
        self._plan = plan
        self.own = own

    def plan(self, arguments: Mapping[str, Any]) -> Steps:
        return self._plan(arguments)
