"""Undecided specifications that a node holds, and which of them are on its disk."""

from __future__ import annotations

from collections.abc import Iterable

from neo.transactor.messages import Sid, Spec


class Specs(dict[Sid, Spec]):
    """Holds at most one specification per origin, besides those that are needed."""

    def __init__(self, held: dict[Sid, Spec]) -> None:
        super().__init__(held)
        self._written = set(held)
        self._latest: dict[int, Sid] = {sid.node: sid for sid in held}
        #: When to request missing data, by sid.
        self._due: dict[Sid, int] = {}

    def add(self, spec: Spec, needed: Iterable[Sid | None]) -> None:
        """Hold it instead of the origin's last one, unless that is among those ``needed``."""
        before = self._latest.get(spec.sid.node)
        if before is not None and before != spec.sid and before not in needed:
            self.pop(before, None)
            self._written.discard(before)
        self[spec.sid] = spec
        self._latest[spec.sid.node] = spec.sid

    def missing(self, sid: Sid, now: int, first: int, again: int) -> bool:
        """Return whether to request it now: after ``first`` ticks, then every ``again`` ticks."""
        if now < self._due.setdefault(sid, now + first):
            return False
        self._due[sid] = now + again
        return True

    def write(self, sid: Sid) -> Spec | None:
        """Return the specification and mark it as written; None if it is on disk already."""
        if sid in self._written:
            return None
        self._written.add(sid)
        return self[sid]

    def decided(self, last: Sid, needed: Iterable[Sid | None]) -> None:
        """Keep each origin's newest and those needed for the next transaction."""
        self._due.clear()
        keep = ({*self._latest.values()} - {last}).union(sid for sid in needed if sid)
        for sid in self.keys() - keep:
            del self[sid]
        self._written &= keep
