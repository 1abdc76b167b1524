"""The loop of a storage node, for a folder of contents: callbacks run in the thread of the test."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from tests.support.patience import PATIENCE_SECONDS


class Loop:
    """Runs the callbacks of a folder in the thread of the test."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., None], tuple[object, ...]]] = SimpleQueue()

    def __call__(self, callback: Callable[..., None], *args: object) -> None:
        self._calls.put((callback, args))

    def ask(self, call: Callable[[Callable[[Any], None]], None]) -> Any:
        """Make a call; return what its callback gets."""
        found: list[Any] = []
        call(found.append)
        while not found:
            self.turn()
        return found[0]

    def turn(self) -> None:
        """Wait for a callback, and run it."""
        callback, args = self._calls.get(timeout=PATIENCE_SECONDS)
        callback(*args)
