"""Names and indices of peers: an engine knows a peer by its index, the layers around it by its name.

Indices are assigned by the list of members, which is part of the log. A node that does not have the log
as far as its peers may not know their indices: the first members of its configuration have other
indices if members have left since. Therefore a peer that is no member in this node's copy of the log is
a *guest*, with an index below those of members. The node learns the log from guests, and nothing else
(:meth:`neo.transactor.catchup.CatchUp.on_guest`).
"""

from __future__ import annotations

from neo.transactor.engine import Engine
from neo.transactor.peers import GUEST


class Names:
    """The names and indices of one engine. Bound: one guest per peer of the owner's links."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._guests: list[str] = []
        #: Former members too, because the decision that removed a member is sent to it as well.
        self._members: dict[int, str] = {}

    def index(self, name: str) -> int:
        """Return the index of a peer. It changes with the list of members: do not keep it."""
        engine = self._engine
        member = engine.members.named(name)
        if member is not None and not engine.catch_up.joins:
            return member.node
        if name not in self._guests:
            self._guests.append(name)
        return GUEST - self._guests.index(name)

    def name(self, index: int) -> str | None:
        """Return the name of a peer; None if the index is unknown here."""
        if index <= GUEST:
            return self._guests[GUEST - index]
        member = self._engine.members.at(index)
        if member is not None:
            self._members[index] = member.name
        return self._members.get(index)
