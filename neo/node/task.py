"""Long workflows as coroutines, without an event loop.

Workflows such as recovery and verification are ``async def``, so that they read like the specification.
They await only a :class:`Future` of this module: an answer, a time, a durable write. The call that
completes the future steps the workflow at once, on its own stack.

Rule: between two awaits nothing else runs; after an await everything may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from inspect import CORO_RUNNING, getcoroutinestate
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Cancelled(Exception):
    """Thrown at the await of a workflow that is cancelled."""


class Future(Generic[T]):
    """A result that is set later, once."""

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
        """Call back when done; at once if already done."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def result(self) -> T:
        """Return the result, or raise the error that the future failed with."""
        assert self.done
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def __await__(self) -> Generator[Future[T], None, T]:
        if not self.done:
            yield self
        return self.result()


class Task(Future[T]):
    """A running workflow, and the future of its result."""

    __slots__ = ("_cancelled", "_coroutine", "_waiting", "name")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self.name: str = getattr(coroutine, "__qualname__", "workflow")
        self._coroutine = coroutine
        self._waiting: Future[Any] | None = None
        self._cancelled = False
        self._step(None)

    def _resume(self, future: Future[Any]) -> None:
        # Ignore a future that the workflow no longer waits for, after a cancellation. Also ignore one
        # that the workflow completes itself, by closing a connection while it is discarded with its
        # core.
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
        except Exception as e:  # noqa: BLE001  # raised at the await of the task
            self.fail(e)
        else:
            self._waiting = awaited
            awaited.then(self._resume)

    def cancel(self) -> None:
        """Throw Cancelled at the current await, or at the next one. Do nothing if the task is done."""
        self._cancelled = True
        if not self.done and self._waiting is not None:
            self._step(Cancelled(self.name))


def first(*futures: Future[Any]) -> Future[None]:
    """Return a future that is done when any of these is, even if that one fails."""
    done: Future[None] = Future()
    for future in futures:
        future.then(lambda _: done.resolve(None))
    return done


class Checkpoint:
    """``await Checkpoint()`` continues at once, unless the workflow was cancelled by its last step."""

    def __await__(self) -> Generator[Future[None], None, None]:
        done: Future[None] = Future()
        done.resolve(None)
        yield done
