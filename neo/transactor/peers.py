"""What a node knows of its peers besides their votes: their positions in the log, and their journals.

A journal has a random id. A peer that comes back with another journal has forgotten its promises. It is a
*stranger*, whose votes do not count, unless the journal was begun as that of a learner (learner.py).
"""

from __future__ import annotations

from neo.transactor.messages import Status

#: The index of the first guest (:mod:`neo.transactor.node`); each further one has the next lower index.
GUEST = -2


class Peers:
    def __init__(self, known: dict[int, int]) -> None:
        #: The ids of their journals.
        self.known = known
        self.strangers: set[int] = set()
        #: Peers that say that they do not vote.
        self.learners: set[int] = set()
        #: The next transaction of each peer, as it said last.
        self.tids: dict[int, int] = {}
        self._asked = 0

    def advance(self, q: int, tid: int) -> None:
        """Note that peer q is at transaction ``tid``, or later."""
        if tid > self.tids.get(q, 0):
            self.tids[q] = tid

    def status(self, q: int, m: Status) -> bool:
        """Handle a status. Return whether the id of the journal is new, and must be recorded."""
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
        """Return a peer that knows transaction ``tid``; one that is not suspected, if possible."""
        ahead = sorted(q for q, theirs in self.tids.items() if theirs > tid)
        alive = [q for q in ahead if q not in suspected] or ahead
        self._asked += 1
        return alive[self._asked % len(alive)]
