"""A part of a transaction without data, which a test adds to know of its vote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Watch:
    """A data manager whose vote calls a function. ``key``: empty to vote before all databases, ``~`` to
    vote after them."""

    def __init__(self, manager: Any, key: str, vote: Callable[[], None]) -> None:
        self.transaction_manager = manager
        self._key = key
        self._vote = vote

    def sortKey(self) -> str:
        return self._key

    def tpc_vote(self, transaction: Any) -> None:
        self._vote()

    def tpc_begin(self, transaction: Any) -> None: ...

    commit = tpc_finish = tpc_abort = abort = tpc_begin
