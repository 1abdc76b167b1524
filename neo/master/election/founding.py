"""How a log begins: a master with an empty folder does not know what it is.

The cluster may be new; or this master is new in it; or its disk was lost. Each journal has a random name,
chosen once. If nobody has a log, it is *founded* when all configured masters are there: each tells the
names that it has heard, and when all tell the same names, all begin. Otherwise a master that finds itself
among the members of a log begins as one that has lost its own: it learns before it votes, as it may have
forgotten what it promised.

Why no two logs: who begins has heard everybody tell this list of names, his own included. Who lost his
disk afterwards has another name: he is not in the list, and finds a log that has begun.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from neo.protocol.packets import Address, NotifyLogState


class Beginning(Enum):
    #: Everybody is new.
    FOUND = auto()
    #: Others have a log, of which this master is a member.
    RECOVER = auto()


class Founding:
    """Of a master whose log has not begun."""

    def __init__(self, me: Address, masters: Iterable[Address], journal: int) -> None:
        """``masters`` as configured, this one included."""
        self.me = me
        self.journal = journal
        #: Others have a log, of which this master is no member.
        self.outside = False
        self._masters = set(masters)
        #: Names of the journals that have not begun.
        self._names: dict[Address, int] = {me: journal}
        self._lists: dict[Address, dict[Address, int]] = {}

    def state(self) -> NotifyLogState:
        """What to tell the others, whenever it changes."""
        return NotifyLogState(self.journal, False, b"", sorted(self._names.items()))

    def waits_for(self) -> list[Address]:
        """Who was not heard."""
        return sorted(self._masters - self._names.keys())

    def hear(self, master: Address, m: NotifyLogState) -> Beginning | None:
        """What ``master`` tells of itself; how this log begins, if that is known now."""
        told = dict(m.journal_list)
        if m.begun:
            if self.me not in told:
                self.outside = True
                return None
            founder = told[self.me] == self.journal and told.keys() == self._masters
            return Beginning.FOUND if founder else Beginning.RECOVER
        if master not in self._masters:
            return None  # somebody who was configured otherwise
        self._names[master] = m.journal
        self._lists[master] = told
        if self._names.keys() != self._masters:
            return None
        agreed = all(self._lists.get(q) == self._names for q in self._masters - {self.me})
        return Beginning.FOUND if agreed else None
