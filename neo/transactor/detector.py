"""The failure detector of the log: suspect a peer that was silent for longer than its timeout.

The detector may err. When a suspected peer is heard again, its timeout grows, so that a peer that is
alive is eventually never suspected again (class ◇P of Chandra and Toueg; the algorithm needs only ◇S).
"""

from __future__ import annotations

#: A timeout grows up to this multiple of the configured silence.
TIMEOUT_FACTOR = 8


class Detector:
    """Times are ticks of the owner."""

    def __init__(self, silence: int) -> None:
        self._silence = silence
        self._heard: dict[int, int] = {}
        self._timeouts: dict[int, int] = {}
        self.suspected: set[int] = set()
        #: Suspected because the owner reported them gone, not by a timeout.
        self._gone: set[int] = set()
        self.watched: tuple[int, ...] = ()

    def watch(self, group: tuple[int, ...], me: int, now: int) -> None:
        """Watch exactly these nodes. A new one counts as heard now."""
        self.watched = group
        peers = set(group) - {me}
        self._heard = {q: self._heard.get(q, now) for q in peers}
        self._timeouts = {q: self._timeouts.get(q, self._silence) for q in peers}
        self.suspected &= peers
        self._gone &= peers

    def heard(self, q: int, now: int) -> None:
        if q not in self._heard:
            return
        self._heard[q] = now
        if q in self.suspected:
            self.suspected.discard(q)
            if q in self._gone:
                self._gone.discard(q)
                return
            limit = self._silence * TIMEOUT_FACTOR
            self._timeouts[q] = min(self._timeouts[q] * 3 // 2 + 1, limit)

    def gone(self, q: int) -> None:
        """Suspect q until it is heard again: the owner knows that it is down."""
        if q in self._heard and q not in self.suspected:
            self.suspected.add(q)
            # This suspicion is no error of the detector, so hearing q again must not raise its timeout.
            self._gone.add(q)

    def tick(self, now: int) -> None:
        for q, heard in self._heard.items():
            if now - heard > self._timeouts[q]:
                self.suspected.add(q)

    def silent_for(self, q: int, now: int) -> int:
        """Return the number of ticks since q was heard."""
        return now - self._heard.get(q, now)
