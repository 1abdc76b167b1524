"""The environment of a core: time, timers, randomness, connections, faults.

The process of a node implements it (``process.py``), and so does the simulator. A role that needs more
extends the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from neo.net.fault_sites import FaultSite
from neo.node.meter import Meter
from neo.node.peer import Peer
from neo.node.tracing import Traces


class Timer(Protocol):
    def cancel(self) -> None: ...


class Host(Protocol):
    """All methods but :meth:`from_thread` are called on the thread of the event loop."""

    random: Random
    #: None if requests are not measured.
    meter: Meter | None
    #: None if traces are not exported.
    traces: Traces | None

    def time(self) -> float:
        """Return the seconds since 1970. This clock may jump."""

    def monotonic(self) -> float:
        """Return the seconds of a clock that never jumps."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer: ...

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        """Run a callback on the thread of the event loop. Any thread may call this method."""

    def dial(self, peer: Peer) -> None:
        """Connect to ``peer.address``. ``peer.lost`` reports a failure."""

    def reopen_logs(self) -> None: ...

    def fault(self, site: FaultSite) -> bool:
        """Return whether to inject the fault of this site now; False outside of simulations."""

    def stop(self, code: int) -> None:
        """Send what is queued, then end the process with this exit code."""
