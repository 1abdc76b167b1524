"""How a log is founded, or found.

A master with an empty folder does not know its situation: the cluster may be new; this master may be
new in the cluster; or its disk was lost. Each journal has a random id, chosen once. If no master has a
log, the log is *founded* when all configured masters are present: each announces the ids that it has
heard, and when all announce the same ids, all begin. If another master has a log of which this master
is a member, it begins as one that lost its own: it learns before it votes, as it may have forgotten
promises.

Why there are never two logs: a master that founds has heard all others announce the same list of ids,
its own included. A master that loses its disk afterwards has another id. It is not in the list, and
finds a log that has begun.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from neo.protocol.packets import Address, NotifyLogState
from neo.transactor.durable import Begun


class Founding:
    """The state of a master whose log has not begun."""

    def __init__(self, me: Address, masters: Iterable[Address], journal: int) -> None:
        """``masters``: the configured masters, with this one."""
        self.me = me
        self.journal = journal
        #: Other masters have a log of which this master is no member.
        self.outside = False
        self._masters = set(masters)
        #: Ids of the journals that have not begun.
        self._names: dict[Address, int] = {me: journal}
        self._lists: dict[Address, dict[Address, int]] = {}

    def state(self) -> NotifyLogState:
        """Return the state that this master announces to the others whenever it changes."""
        return NotifyLogState(self.journal, False, b"", sorted(self._names.items()))

    def waits_for(self) -> list[Address]:
        """Return the masters that were not heard yet."""
        return sorted(self._masters - self._names.keys())

    def hear(self, master: Address, m: NotifyLogState) -> Begun | None:
        """Handle the state of ``master``. Return how this log begins, once that is known: FRESH if no
        master has a log, RECOVERED if others have one of which this master is a member."""
        told = dict(m.journal_list)
        if m.begun:
            if self.me not in told:
                self.outside = True
                return None
            founder = told[self.me] == self.journal and told.keys() == self._masters
            return Begun.FRESH if founder else Begun.RECOVERED
        if master not in self._masters:
            return None  # a master with another configuration
        self._names[master] = m.journal
        self._lists[master] = told
        if self._names.keys() != self._masters:
            return None
        agreed = all(self._lists.get(q) == self._names for q in self._masters - {self.me})
        return Begun.FRESH if agreed else None
