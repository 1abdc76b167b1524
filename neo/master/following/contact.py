"""Whether the upstream cluster of a backup answers; if not, since when and why.

A backup goes on to serve readers without its upstream cluster, and what it has looks complete. Operators
would not notice that it stands still.
"""

from __future__ import annotations

from typing import NamedTuple

from neo.node.core import Core
from neo.node.liveness import LOOK_SECONDS, Pulse
from neo.node.peer import Peer

#: An answer that is late by less is not reported.
LATE_SECONDS = 5.0
#: A connection that is silent for so long is closed, because another one may work.
SILENCE_SECONDS = 30.0


class Silence(NamedTuple):
    """``seconds``: since the upstream cluster answered last; since the backup started if it never did
    (``ever``). ``reason``: for the operator."""

    seconds: float
    ever: bool
    reason: str


class Contact:
    """The contact of one stay in backup mode. Runs on the loop's thread."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._pulse: Pulse | None = None
        self._heard = core.host.monotonic()
        self._ever = self._late = self._stopped = False
        #: Why the upstream cluster was not followed last.
        self.reason = "it was not reached yet"

    def stop(self) -> None:
        self._stopped = True

    def begin(self, peer: Peer) -> None:
        """Watch the connection through which the upstream cluster is followed."""
        self._heard = self._core.host.monotonic()
        self._ever, self._late = True, False
        self._pulse = Pulse(peer)
        self._tick(self._pulse)

    def failed(self, reason: str) -> None:
        """Note why the upstream cluster is not followed."""
        self._pulse = None
        self.reason = reason

    def silence(self) -> Silence | None:
        """Return how long the upstream cluster has been silent; None while it answers."""
        if self._pulse is not None and not self._late:
            return None
        reason = (
            self.reason
            if self._pulse is None
            else "the connection is open, but it does not answer"
        )
        return Silence(self._core.host.monotonic() - self._heard, self._ever, reason)

    def _tick(self, pulse: Pulse) -> None:
        """Check the connection. Call once for each; it reschedules itself while the connection is
        used."""
        if pulse is not self._pulse or self._stopped:
            return
        owed = pulse.look()
        if not owed:
            self._heard = self._core.host.monotonic()
        self._late = owed > LATE_SECONDS
        if owed > SILENCE_SECONDS:
            pulse.peer.lost("it does not answer")
        else:
            self._core.call_later(LOOK_SECONDS, lambda: self._tick(pulse))
