"""What the client's blocking side needs from the world: streams, sleeping threads, a clock.

The real one is :mod:`neo.client.system`. The simulator brings its own, and runs the same client.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from neo.net.fault_sites import FaultSite
from neo.net.tls import TlsLink
from neo.protocol.packets import Address


class Wire(Protocol):
    """A connected stream of bytes. One thread may send while another receives."""

    def send(self, data: bytes) -> None:
        """All of it. Raises OSError; HandshakeError when TLS cannot be established."""

    def receive(self, wait: bool) -> bytes | None:
        """Some bytes; b"" at the end of the stream; None if nothing came for a while (``wait``: up
        to a tick of the host, else at once). Raises OSError, HandshakeError."""

    def end(self) -> None:
        """End the stream and wake up whoever receives or sends."""

    def close(self) -> None:
        """Give the descriptor back, when nobody uses it; after a fork, without any effect on the
        parent's connection. May be called twice."""


class Waker(Protocol):
    """What one thread sleeps on until another one wakes it, once."""

    def wait(self) -> None: ...

    def wake(self) -> None: ...


class Watch(Protocol):
    """The watcher's interest in one wire. The watcher is one thread for all of them."""

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def forget(self) -> None: ...


class Served(Protocol):
    """What a watch serves."""

    def serve(self) -> None:
        """Bytes came, or the end, while the watch was armed; it is not any more."""


class Host(Protocol):
    """Everything that blocks or differs between the real world and a simulated one."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def lock(self) -> AbstractContextManager[object]: ...

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
