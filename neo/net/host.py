"""What the client's blocking side needs from the world: streams, sleeping threads, a clock.

The real one is :mod:`neo.client.system`. The simulator brings its own, and runs the same client.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

from neo.net.fault_sites import FaultSite
from neo.net.tls import TlsLink
from neo.protocol.packets import Address


class Wire(Protocol):
    """A connected stream of bytes. One thread may send while another receives.

    An exception that comes from outside (a signal, another thread) loses no byte and sends none
    twice: the next call goes on where the last one was interrupted.
    """

    def send(self, outgoing: list[bytes]) -> None:
        """Send all, and delete from the list what is sent; others may append meanwhile. Raises OSError
        with an errno; HandshakeError when TLS cannot be established."""

    def receive(self, portions: list[bytes], wait: bool) -> bool:
        """Append some bytes; b"" at the end of the stream. Return False if nothing came for a while
        (``wait``: up to a tick of the host, else at once). Raises OSError with an errno,
        HandshakeError."""

    def end(self) -> None:
        """End the stream and wake up whoever receives or sends."""

    def close(self) -> None:
        """Give the descriptor back, when nobody uses it; after a fork, without any effect on the
        parent's connection. May be called twice."""


class Waker(Protocol):
    """What one thread sleeps on until another one wakes it."""

    def wait(self, seconds: float) -> None:
        """Sleep until :meth:`wake`, at most so long."""

    def wake(self) -> None:
        """Idempotent."""


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


class Served(Protocol):
    """What a watch serves."""

    def serve(self) -> None:
        """Read: bytes came, or the end, while the watch was armed; it is not any more."""

    def sweep(self) -> None:
        """Read if nobody else does, about each second."""


class Host(Protocol):
    """Everything that blocks or differs between the real world and a simulated one."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def lock(self) -> Lock: ...

    def presence(self) -> Lock:
        """Return a lock that one thread only ever takes, to show the others that it is there."""

    def rlock(self) -> AbstractContextManager[object]:
        """One that its owner may take again."""

    def waker(self) -> Waker: ...

    def watch(self, wire: Wire, served: Served) -> Watch:
        """Disarmed at first."""

    def connect(self, address: Address, tls: TlsLink | None, seconds: float | None = None) -> Wire:
        """``seconds``: to be connected in, if not as usual. Raises OSError, HandshakeError."""

    def sleep(self, seconds: float) -> None: ...

    def choose(self, items: Sequence[int]) -> int:
        """One of them at random."""

    def fault(self, site: FaultSite) -> bool:
        """Whether to do now what the site is for; False outside of simulations."""

    def reopen_logs(self) -> None:
        """Write out the logs of the client, and open again files that were moved away."""

    def stop(self) -> None:
        """The client is closed: nothing is watched any more."""

    def forked(self) -> None:
        """In the child of a fork."""
