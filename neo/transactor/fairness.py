"""Fairness: which node's specification comes next when several nodes want each transaction.

The origin of the last transaction coordinates round 0, and receives its own posts first, then those of
near peers. Therefore it serves nodes in the order in which they were served last. It holds back its own
specification, and wishes of others, while a node that has waited longer may still post. It does so for
a few ticks only, because that node may have given up. A node waits if its data has arrived and is not
decided, or if it told this node that a post came too late.
"""

from __future__ import annotations

from neo.transactor.consensus import Process
from neo.transactor.messages import Sid, Wish
from neo.transactor.outbox import Outbox


class Fairness:
    def __init__(self, ticks: int, outbox: Outbox) -> None:
        self._ticks = ticks
        self._outbox = outbox
        #: The last transaction of each node, as far as this node has seen it.
        self._served: dict[int, int] = {}
        #: Nodes that wanted a transaction since they were served; nodes that want the present one.
        self._waiting: set[int] = set()
        self._wishing: set[int] = set()
        #: Wishes that are held back, by node; the tick at which they are served at the latest.
        self.held: dict[int, Sid] = {}
        self._until = 0
        #: A post came too late for the present transaction.
        self._refused = False

    def want(self, process: Process, sid: Sid, now: int) -> None:
        """Handle a post of this node."""
        if _serves(process):
            self._hold(process, process.me, sid, now)
        else:
            process.want(sid)

    def wish(self, process: Process, q: int, m: Wish, now: int) -> None:
        """Handle a wish of node ``q``."""
        if m.round == 0 and _serves(process):
            self._hold(process, q, m.sid, now)
        else:
            self._wishing.add(q)
            process.on_wish(q, m)

    def waits(self, q: int) -> None:
        """Note that ``q`` posted, or tried to post, since it was served."""
        self._waiting.add(q)

    def refused(self) -> None:
        """Note that a post of this node came too late for the present transaction."""
        self._refused = True

    def _hold(self, process: Process, q: int, sid: Sid, now: int) -> None:
        self._wishing.add(q)
        self.held[q] = sid
        self._until = self._until or now + self._ticks
        self.serve(process, now)

    def serve(self, process: Process, now: int) -> None:
        """Propose held wishes for which no node with a longer wait is expected."""
        if now >= self._until:
            self._waiting &= self._wishing  # the time of the others is over
        awaited = self._waiting - self._wishing
        longest = min((self._last(q) for q in awaited), default=process.tid)
        for q in sorted((q for q in self.held if self._last(q) <= longest), key=self._last):
            sid = self.held.pop(q)
            if q == process.me:
                process.want(sid)
            else:
                process.on_wish(q, Wish(process.tid, 0, sid))

    def decided(self, tid: int, origin: int, process: Process | None) -> None:
        """Reset after a decision; ``process`` was this node's part in it."""
        if process is not None and process.me != origin and origin in process.members:
            if self._refused:
                self._outbox.aside(origin, Wish(tid, 0, Sid(process.me, 0)))
        self._waiting |= self._wishing
        self._waiting.discard(origin)
        self._served[origin] = tid
        self._wishing.clear()
        self.held.clear()
        self._until = 0
        self._refused = False

    def _last(self, q: int) -> int:
        return self._served.get(q, 0)


def _serves(process: Process) -> bool:
    """Return whether this node chooses the specification of this round."""
    return process.coordinator == process.me and process.round == 0 and not process.proposed
