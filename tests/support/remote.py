"""Cores under test without IO: a host with a virtual clock, and remote nodes played by the test.

A :class:`Remote` is the other end of a connection. Its messages reach the core at once; messages of the
core are in :attr:`Remote.received`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, TypeVar

from neo.net.connection import Connection
from neo.net.fault_sites import FaultSite
from neo.node.core import Core
from neo.node.meter import Meter
from neo.node.peer import Peer
from neo.node.task import Future
from neo.node.tracing import Traces
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer, PeerError
from neo.protocol.packets import Address, Error, Message, Ping, Pong, Request

M = TypeVar("M")


class FakeTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeHost:
    """A host whose time passes only in :meth:`advance`, and that has no threads."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self.random = Random(0)
        self.meter: Meter | None = None
        self.traces: Traces | None = None
        self.now = start
        self.elapsed = 0.0
        self.exit_code: int | None = None
        self.dialed: list[Remote] = []
        self.logs_reopened = 0
        self.restarts = 0
        self.shared = False
        self.core: Core | None = None
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._order = count()

    def time(self) -> float:
        return self.now + self.elapsed

    def monotonic(self) -> float:
        return self.elapsed

    def call_later(self, delay: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        heapq.heappush(self._timers, (self.elapsed + delay, next(self._order), timer))
        return timer

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        self.call_later(0, lambda: callback(*args))
        return None

    def dial(self, peer: Peer) -> None:
        self.dialed.append(Remote(peer, server=True))

    def reopen_logs(self) -> None:
        self.logs_reopened += 1

    def fault(self, site: FaultSite) -> bool:
        return False

    def stop(self, code: int) -> None:
        self.exit_code = code

    def restart(self, why: str) -> None:
        self.restarts += 1

    def renew(self) -> None:
        self.stop(0)

    def healthy(self) -> None:
        pass

    def advance(self, seconds: float = 0.0) -> None:
        """Let time pass, and run the timers that are due."""
        end = self.elapsed + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self.elapsed = max(self.elapsed, due)
            if timer.callback is not None:
                timer.callback()
                if self.core is not None:
                    self.core.flush()
        self.elapsed = end


class Remote:
    """The node at the other end of a peer of the core under test."""

    def __init__(self, peer: Peer, server: bool) -> None:
        self.peer = peer
        self.connection = Connection(server=server)
        self.connection.trust()
        self.received: list[Any] = []
        self.ids: dict[int, int | None] = {}  # id(message) -> message id
        self.closed = False
        self.unsent = 0
        self.paused = False
        #: Whether it answers Ping by itself.
        self.lively = False
        #: The text of an Error that answers no request: the reason why the core closes.
        self.complaint = ""
        peer.link = self

    @classmethod
    def connect(cls, core: Core, address: Address = ("127.0.0.1", 9999)) -> Remote:
        """Connect a new peer to the core."""
        remote = cls(core.accepted(address), server=False)
        core.flush()
        return remote

    # -- Link: called by the core ------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        try:
            self._receive(data)
        except PeerError as e:
            self.complaint = str(e)

    def _receive(self, data: bytes) -> None:
        for message_id, message, question in self.connection.receive(data):
            if self.lively and type(message) is Ping and message_id is not None:
                self.connection.answer(message_id, Pong())
                self._flush()
                continue
            self.received.append(message)
            self.ids[id(message)] = message_id
            if question is not None:
                _resolve(question.context, message)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    # -- called by tests -----------------------------------------------------------------------------

    def _flush(self) -> None:
        data = self.connection.take_outgoing()
        if data and not self.closed:
            self.peer.received(data)

    def send(self, message: Message) -> None:
        self.connection.send(message)
        self._flush()

    def ask(self, message: Request[Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.connection.ask(message, future)
        self._flush()
        return future

    def answer(self, question: Message, message: Message) -> None:
        """Answer a request that was received."""
        message_id = self.ids[id(question)]
        assert message_id is not None
        self.connection.answer(message_id, message)
        self._flush()

    def lose(self, reason: str = "lost") -> None:
        """End the connection, as a broken network does."""
        self.closed = True
        self.peer.lost(reason)

    def take(self, kind: type[M]) -> M:
        """Remove and return the first received message of a type. Raise AssertionError."""
        for index, message in enumerate(self.received):
            if type(message) is kind:
                del self.received[index]
                return message
        raise AssertionError(f"no {kind.__name__} among {self.received}")

    def has(self, kind: type[Message]) -> bool:
        return any(type(message) is kind for message in self.received)

    def names(self) -> list[str]:
        """Return the names of the received messages in order, and forget the messages."""
        names = [type(message).__name__ for message in self.received]
        self.received.clear()
        return names


def _resolve(future: Future[Any], message: Message) -> None:
    if type(message) is Error and message.code:
        future.fail(ErrorAnswer(ErrorCode(message.code), message.message))
    else:
        future.resolve(message)


def error_of(future: Future[Any]) -> ErrorAnswer:
    """Return the Error that answered a request."""
    try:
        result = future.result()
    except ErrorAnswer as e:
        return e
    raise AssertionError(f"answered {result}")
