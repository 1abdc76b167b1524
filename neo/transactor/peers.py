"""What a node knows of its peers besides their votes: where they are in the log, and whose they are.

A journal has a random name. A peer that comes back with another journal has forgotten its promises: it is
a stranger whose votes do not count, unless its journal was begun as that of a learner (learner.py).
"""

from __future__ import annotations

from neo.transactor.messages import Status


class Peers:
    def __init__(self, known: dict[int, int]) -> None:
        #: The names of their journals.
        self.known = known
        self.strangers: set[int] = set()
        #: Those who do not vote, by their own words.
        self.learners: set[int] = set()
        #: Their next transaction, as they said last.
        self.tids: dict[int, int] = {}
        self._asked = 0

    def said(self, q: int, tid: int) -> None:
        """A message of q is of transaction ``tid``."""
        if tid > self.tids.get(q, 0):
            self.tids[q] = tid

    def status(self, q: int, m: Status) -> bool:
        """Whether its journal is new to us, and accepted; it is to be remembered then."""
        self.tids[q] = m.tid
        (self.learners.add if m.learner else self.learners.discard)(q)
        known = self.known.get(q)
        if known == m.log:
            self.strangers.discard(q)
            return False
        if known is not None and not m.recovered:
            self.strangers.add(q)
            return False
        self.strangers.discard(q)
        self.known[q] = m.log
        return True

    def forget(self, q: int) -> None:
        self.known.pop(q, None)
        self.tids.pop(q, None)
        self.strangers.discard(q)
        self.learners.discard(q)

    def ahead(self, tid: int, suspected: set[int]) -> int:
        """Somebody who knows transaction ``tid``, in turn; the alive ones first."""
        ahead = sorted(q for q, theirs in self.tids.items() if theirs > tid)
        alive = [q for q in ahead if q not in suspected] or ahead
        self._asked += 1
        return alive[self._asked % len(alive)]
