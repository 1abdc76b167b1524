"""The environment of a client: streams, locks, sleeping threads, a clock.

:mod:`neo.client.host.system` implements it; the simulator has another implementation for the same client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

from neo.net.fault_sites import FaultSite
from neo.net.tls import TlsLink
from neo.protocol.packets import A, Address, Request


class Wire(Protocol):
    """A connected stream of bytes. One thread may send while another receives.

    An exception from outside (a signal, another thread) loses no byte and sends none twice: the next
    call continues where the last one was interrupted.
    """

    def send(self, outgoing: list[bytes]) -> None:
        """Send all, and delete sent messages from the list; other threads may append. Raise OSError with
        an errno; HandshakeError if TLS cannot be established."""

    def receive(self, portions: list[bytes], wait: bool) -> bool:
        """Append received bytes; b"" at the end of the stream. Return False if none came, at once or,
        with ``wait``, after a tick of the host. Raise OSError with an errno, HandshakeError."""

    def flow(self) -> tuple[int, int]:
        """Return how many bytes the peer's machine has acknowledged, and how many are on their way."""

    def end(self) -> None:
        """End the stream, and wake threads that receive or send."""

    def close(self) -> None:
        """Close the descriptor. Call when no thread uses it; after a fork this does not affect the
        parent's connection. Idempotent."""


#: Messages are sent with one write, up to so many bytes: to copy more costs more than a write.
GATHERED_BYTES = 64 * 1024


def gather(outgoing: list[bytes]) -> None:
    """Make one of the messages, if there are several small ones. Other threads may append meanwhile."""
    count = len(outgoing)
    if count > 1 and sum(map(len, outgoing)) <= GATHERED_BYTES:
        # One step: an exception from outside comes before it or after.
        outgoing[:count] = (b"".join(outgoing[:count]),)


class Waker(Protocol):
    """One thread sleeps on it until another thread wakes it."""

    def wait(self, seconds: float) -> None:
        """Sleep until :meth:`wake`, at most this long."""

    def wake(self) -> None:
        """Wake the thread. Idempotent."""


class Lock(Protocol):
    """A lock that a ``with`` statement releases whatever exception comes, at any instruction."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    def locked(self) -> bool: ...


class Watch(Protocol):
    """The watcher's interest in one wire. The watcher is one thread for all of them."""

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def forget(self) -> None: ...


class Watched(Protocol):
    """Reads when its watch tells that bytes came."""

    def serve(self) -> None:
        """Read: bytes, or the end of the stream, came while the watch was armed. The watch is
        disarmed."""

    def sweep(self) -> None:
        """Read unless a thread does. Called about each second."""


class DirectReads(Protocol):
    """Reads of nodes that are in this process, which the calling thread makes itself."""

    def answer(self, nids: Collection[int], message: Request[A]) -> A | None:
        """Return the answer of one of these nodes to a read; None if it must be asked with the message.
        An exception from outside harms only this call."""


class ThreadHost(Protocol):
    """What blocks, or differs between a process and the simulator."""

    @property
    def direct(self) -> DirectReads | None:
        """None if all nodes are reached by wires only."""

    def name(self) -> str:
        """Return the name of this process for operators, such as ``web1:4711``."""

    def now(self) -> float:
        """Return the seconds of a clock that never goes back."""

    def lock(self) -> Lock: ...

    def presence(self) -> Lock:
        """Return a lock that only one thread ever takes, to show the other threads its presence."""

    def rlock(self) -> AbstractContextManager[object]:
        """Return a lock that its owner may take again."""

    def waker(self) -> Waker: ...

    def watch(self, wire: Wire, watched: Watched) -> Watch:
        """Return a disarmed watch of a wire."""

    def connect(self, address: Address, tls: TlsLink | None, seconds: float | None = None) -> Wire:
        """Return a connected wire. ``seconds``: the timeout, if not the usual one. Raise OSError,
        HandshakeError."""

    def sleep(self, seconds: float) -> None: ...

    def background(self, job: Callable[[], None], name: str) -> None:
        """Run a job in a thread of its own, which does not keep the process alive."""

    def choose(self, items: Sequence[int]) -> int:
        """Return one item at random."""

    def fault(self, site: FaultSite) -> bool:
        """Return whether to inject the fault of this site now; False outside of simulations."""

    def reopen_logs(self) -> None:
        """Flush the logs of the client, and open files again that were moved away."""

    def stop(self) -> None:
        """Stop watching: the client is closed."""

    def forked(self) -> None:
        """Start anew in the child of a fork."""
