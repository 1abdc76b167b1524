"""The specifications that a node holds and that are not decided yet; which of them are on its disk."""

from __future__ import annotations

from collections.abc import Iterable

from neo.transactor.messages import Sid, Spec


class Specs:
    """At most one per origin, besides those that are needed."""

    def __init__(self, held: dict[Sid, Spec]) -> None:
        self._held = dict(held)
        self._written = set(held)
        self._latest: dict[int, Sid] = {sid.node: sid for sid in held}

    def __contains__(self, sid: Sid) -> bool:
        return sid in self._held

    def __getitem__(self, sid: Sid) -> Spec:
        return self._held[sid]

    def get(self, sid: Sid) -> Spec | None:
        return self._held.get(sid)

    def add(self, spec: Spec, needed: Iterable[Sid | None]) -> None:
        """Hold it instead of the origin's last, unless that is among those ``needed``."""
        before = self._latest.get(spec.sid.node)
        if before is not None and before != spec.sid and before not in needed:
            self._held.pop(before, None)
            self._written.discard(before)
        self._held[spec.sid] = spec
        self._latest[spec.sid.node] = spec.sid

    def write(self, sid: Sid) -> Spec | None:
        """The specification if it is not on disk yet; it is from now on."""
        if sid in self._written:
            return None
        self._written.add(sid)
        return self._held[sid]

    def decided(self, last: Sid, needed: Iterable[Sid | None]) -> None:
        """A transaction is over: keep each origin's newest and those needed for the next."""
        keep = ({*self._latest.values()} - {last}).union(sid for sid in needed if sid)
        if len(keep) != len(self._held) or last in self._held:
            self._held = {sid: spec for sid, spec in self._held.items() if sid in keep}
            self._written &= keep
