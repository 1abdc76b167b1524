"""Backoff between attempts, up to ``wait_timeout``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neo.client.errors import ClosedError, UnavailableError
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, HandshakeError

if TYPE_CHECKING:
    from neo.client.session import Session

#: The first and the longest pause between two rounds over masters or replicas.
PAUSE_SECONDS = (0.05, 1.0)

#: Errors of a storage node after which another one, or the same one later, may answer.
NOT_HERE = (ErrorCode.NON_READABLE_CELL, ErrorCode.NOT_READY, ErrorCode.CHECKING_ERROR)
LOST = (ConnectionLost, HandshakeError, OSError)


class Pause:
    """Exponential backoff until ``wait_timeout`` is over."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._deadline = session.host.now() + session.settings.wait_timeout
        self._seconds = PAUSE_SECONDS[0]

    def check(self, reason: str) -> None:
        """Raise UnavailableError after ``wait_timeout``, ClosedError if the storage was closed."""
        if self._session.closed:
            raise ClosedError("the storage is closed")
        if self._session.host.now() >= self._deadline:
            raise UnavailableError(
                f"cluster {self._session.settings.cluster!r} did not answer for "
                f"{self._session.settings.wait_timeout:g} s; last reason: {reason}"
            )

    def take(self, reason: str, most: float = PAUSE_SECONDS[1]) -> None:
        """Raise the errors of check(), or sleep. ``most``: seconds of the longest pause."""
        self.check(reason)
        self._session.host.sleep(min(self._seconds, most))
        self._seconds = min(2 * self._seconds, PAUSE_SECONDS[1])
