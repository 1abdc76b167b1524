"""Whose specification comes next, when several nodes want each transaction.

Who was served last coordinates round 0, and hears itself first, near peers next. Therefore it serves in
the order in which nodes were served last: it holds back its own specification, and wishes of others,
while somebody is awaited who waits longer; for a few ticks, because that one may have given up. Whose
data is there and not decided waits, and so does who came too late to post: it says so to the one who was
served.
"""

from __future__ import annotations

from neo.transactor.consensus import Process
from neo.transactor.messages import Sid, Wish
from neo.transactor.outbox import Outbox


class Courtesy:
    def __init__(self, ticks: int, outbox: Outbox) -> None:
        self._ticks = ticks
        self._outbox = outbox
        #: The last transaction of each node, as far as this one has seen it.
        self._served: dict[int, int] = {}
        #: Who wanted a transaction since it was served; who wants the present one.
        self._waiting: set[int] = set()
        self._wishing: set[int] = set()
        #: What is held back, by node, and until when at most.
        self.held: dict[int, Sid] = {}
        self._until = 0
        #: Something was posted here when it was too late for the present transaction.
        self.turned_away = False

    def want(self, process: Process, sid: Sid, now: int) -> None:
        """Something was posted here."""
        if _serves(process):
            self._hold(process, process.me, sid, now)
        else:
            process.want(sid)

    def wish(self, process: Process, q: int, m: Wish, now: int) -> None:
        """Something was posted at ``q``."""
        if m.round == 0 and _serves(process):
            self._hold(process, q, m.sid, now)
        else:
            self._wishing.add(q)
            process.on_wish(q, m)

    def waits(self, q: int) -> None:
        """Something was posted at ``q`` lately, or would have been."""
        self._waiting.add(q)

    def _hold(self, process: Process, q: int, sid: Sid, now: int) -> None:
        self._wishing.add(q)
        self.held[q] = sid
        self._until = self._until or now + self._ticks
        self.serve(process, now)

    def serve(self, process: Process, now: int) -> None:
        """Propose what needs not be held back any more."""
        if now >= self._until:
            self._waiting &= self._wishing  # the others have let it pass
        awaited = self._waiting - self._wishing
        longest = min((self._last(q) for q in awaited), default=process.tid)
        for q in sorted((q for q in self.held if self._last(q) <= longest), key=self._last):
            sid = self.held.pop(q)
            if q == process.me:
                process.want(sid)
            else:
                process.on_wish(q, Wish(process.tid, 0, sid))

    def decided(self, tid: int, origin: int, process: Process | None) -> None:
        """A transaction is over; ``process`` was this node's part in it."""
        if process is not None and process.me != origin and origin in process.members:
            if self.turned_away:
                self._outbox.aside(origin, Wish(tid, 0, Sid(process.me, 0)))
        self._waiting |= self._wishing
        self._waiting.discard(origin)
        self._served[origin] = tid
        self._wishing.clear()
        self.held.clear()
        self._until = 0
        self.turned_away = False

    def _last(self, q: int) -> int:
        return self._served.get(q, 0)


def _serves(process: Process) -> bool:
    """Whether this node chooses whose specification it proposes."""
    return process.coordinator == process.me and process.round == 0 and not process.proposed
