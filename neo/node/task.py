"""Long workflows as coroutines, without an event loop.

Recovery, verification and the like read from top to bottom like the specification when they are
``async def``. They await nothing but a :class:`Future` of ours (an answer, a time, a durable write)
and are stepped at once, on the stack of whoever completes it: no loop, no scheduling, no threads.

Rule: between two awaits nothing else runs; after an await everything may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from inspect import CORO_RUNNING, getcoroutinestate
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Cancelled(Exception):
    """Thrown into a workflow that is not wanted any more, at its await."""


class Future(Generic[T]):
    """A result that comes later, exactly once."""

    __slots__ = ("_callbacks", "_error", "_result", "done")

    def __init__(self) -> None:
        self.done = False
        self._result: T | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Future[T]], None]] = []

    def resolve(self, result: T) -> None:
        if not self.done:
            self._result = result
            self._finish()

    def fail(self, error: Exception) -> None:
        if not self.done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def then(self, callback: Callable[[Future[T]], None]) -> None:
        """Call back when done, at once if it is."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def result(self) -> T:
        """The result; raises the error it ended with."""
        assert self.done
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def __await__(self) -> Generator[Future[T], None, T]:
        if not self.done:
            yield self
        return self.result()


class Task(Future[T]):
    """A running workflow; itself a future of its result."""

    __slots__ = ("_cancelled", "_coroutine", "_waiting", "name")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self.name: str = getattr(coroutine, "__qualname__", "workflow")
        self._coroutine = coroutine
        self._waiting: Future[Any] | None = None
        self._cancelled = False
        self._step(None)

    def _resume(self, future: Future[Any]) -> None:
        # A wake-up by something it does not wait for any more (after a cancellation) is dropped. So is
        # one by itself, while it closes a connection because it is thrown away with its core.
        if future is self._waiting and getcoroutinestate(self._coroutine) != CORO_RUNNING:
            self._step(None)

    def _step(self, error: Exception | None) -> None:
        self._waiting = None
        try:
            while True:
                awaited = (
                    self._coroutine.send(None) if error is None else self._coroutine.throw(error)
                )
                error = Cancelled(self.name) if self._cancelled else None
                if error is None and not awaited.done:
                    break
        except StopIteration as stop:
            self.resolve(stop.value)
        except Exception as e:  # noqa: BLE001  # handed to whoever awaits the task
            self.fail(e)
        else:
            self._waiting = awaited
            awaited.then(self._resume)

    def cancel(self) -> None:
        """Throw Cancelled at the await where it stands, or at its next one; nothing if it is done."""
        self._cancelled = True
        if not self.done and self._waiting is not None:
            self._step(Cancelled(self.name))


def first(*futures: Future[Any]) -> Future[None]:
    """Done when any of them is, however it ended."""
    done: Future[None] = Future()
    for future in futures:
        future.then(lambda _: done.resolve(None))
    return done


class Checkpoint:
    """``await Checkpoint()``: go on at once, unless the workflow was cancelled by what it just did."""

    def __await__(self) -> Generator[Future[None], None, None]:
        done: Future[None] = Future()
        done.resolve(None)
        yield done
