"""The failure detector: who was silent for too long is suspected, idle or not.

It may err: somebody who was suspected and is heard again gets more patience, so that a peer that is
alive is, one day, never suspected again (a detector of class ◇P; the algorithm needs only ◇S).
"""

from __future__ import annotations

#: Patience grows up to this many times the configured silence.
PATIENCE_FACTOR = 8


class Detector:
    """Time is counted in ticks of the owner."""

    def __init__(self, silence: int) -> None:
        self._silence = silence
        self._heard: dict[int, int] = {}
        self._patience: dict[int, int] = {}
        self.suspected: set[int] = set()
        #: Of the suspected, those whom the owner knows to be away.
        self._gone: set[int] = set()
        self.watched: tuple[int, ...] = ()

    def watch(self, group: tuple[int, ...], me: int, now: int) -> None:
        """These and no others; those new are alive until they are not."""
        self.watched = group
        peers = set(group) - {me}
        self._heard = {q: self._heard.get(q, now) for q in peers}
        self._patience = {q: self._patience.get(q, self._silence) for q in peers}
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
            limit = self._silence * PATIENCE_FACTOR
            self._patience[q] = min(self._patience[q] * 3 // 2 + 1, limit)

    def gone(self, q: int) -> None:
        """The owner knows that q is not there: it is suspected until it is heard again."""
        if q in self._heard and q not in self.suspected:
            self.suspected.add(q)
            # That was no error of this detector, so being heard again shall not make it more patient.
            self._gone.add(q)

    def tick(self, now: int) -> None:
        for q, heard in self._heard.items():
            if now - heard > self._patience[q]:
                self.suspected.add(q)

    def silent_for(self, q: int, now: int) -> int:
        """Ticks since q was heard."""
        return now - self._heard.get(q, now)
