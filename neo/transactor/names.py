"""Peers are known by name outside an engine, and by index inside.

The index is in the list of members, which is in the log: a node that does not know the log as far as its
peers do may not know them. The first members of its configuration have other indices, if some have left
since. So those who are no members, as far as is known here, are *guests*, with indices below all others;
the log can be learned from them, and nothing else (:meth:`neo.transactor.catchup.CatchUp.on_guest`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neo.transactor.engine import Engine

#: The index of the first guest; that of the next is less.
GUEST = -2


class Names:
    """Of one engine. There are as many guests as peers that the owner ever had links to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._guests: list[str] = []
        #: Members that left, too: the decision by which they did is for them as well.
        self._members: dict[int, str] = {}

    def index(self, name: str) -> int:
        """Changes with the list of members: to be asked for each message."""
        engine = self._engine
        member = engine.members.named(name)
        if member is not None and not engine.catch_up.joins:
            return member.node
        if name not in self._guests:
            self._guests.append(name)
        return GUEST - self._guests.index(name)

    def name(self, index: int) -> str | None:
        """None if it is not known here whose index this is."""
        if index <= GUEST:
            return self._guests[GUEST - index]
        member = self._engine.members.at(index)
        if member is not None:
            self._members[index] = member.name
        return self._members.get(index)
