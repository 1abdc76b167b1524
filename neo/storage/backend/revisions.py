"""What undo and pack have to know about the revisions of one object. Pure functions.

Field terms: the *origin* of a revision is the serial of the revision whose data it has: itself, or
what ``value_tid`` leads to when it is an undo. A revision without data (``data_id`` None) says that
the object does not exist: its creation was undone, or it was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple


class Revision(NamedTuple):
    """A row of ``obj`` of one object."""

    tid: int
    data_id: int | None
    value_tid: int | None


def origin(revisions: Sequence[Revision], tid: int) -> int:
    """The origin of the revision at ``tid``, as far as the revisions that are left tell."""
    by_tid = {revision.tid: revision for revision in revisions}
    while (value_tid := by_tid[tid].value_tid) is not None and value_tid in by_tid:
        # A valid table only points backwards; the test ends the walk on any other.
        if value_tid >= tid:
            break
        tid = value_tid
    return tid


def before(revisions: Sequence[Revision], tid: int) -> Revision | None:
    """The last of the ascending revisions that is older than ``tid``."""
    return next((r for r in reversed(revisions) if r.tid < tid), None)


class Packed(NamedTuple):
    """What a pack does to one object."""

    removed: list[Revision]
    #: (tid, new value_tid) of revisions that pointed to removed ones.
    changed: list[tuple[int, int | None]]


def never() -> bool:
    """Whether an object is the last one: there is a greater oid."""
    return False


def pack(
    revisions: Sequence[Revision], tid: int, is_last: Callable[[], bool] = never
) -> Packed:
    """Keep of the ascending revisions the last one up to ``tid`` and all later ones.

    That last one goes too if the object did not exist at ``tid``. Only not that of the last object,
    which ``is_last`` tells: no greater oid of the partition has revisions up to ``tid``. A master that
    comes later goes on after the greatest oid that is left, and what is not given again is never taken
    for what a client or an application still has of the object that is gone.

    Of the revisions that had the data of a removed one, the first that is left becomes the origin of the
    others.
    """
    kept = before(revisions, tid + 1)
    if kept is None:
        return Packed([], [])
    first = revisions.index(kept) + (kept.data_id is None and not is_last())
    removed = list(revisions[:first])
    return Packed(removed, repoint(revisions, {revision.tid for revision in removed}))


def packed_value(revisions: Sequence[Revision], serial: int, tid: int) -> int | None:
    """Where the data of revision ``serial`` comes from once the object is packed up to ``tid``. Raises
    KeyError if there is no such revision."""
    values = {revision.tid: revision.value_tid for revision in revisions}
    if serial not in values:
        raise KeyError(serial)
    values.update(pack(revisions, tid).changed)
    return values[serial]


def undo(revisions: Sequence[Revision], tid: int, packed: bool) -> tuple[Revision, int | None] | None:
    """The revision that is undone, and the origin of what the object is then (None: it does not exist
    then). None for both if there is nothing to undo. ``packed``: revisions up to ``tid`` may be gone.
    Raises KeyError if one that matters is."""
    undone = next((r for r in revisions if r.tid == tid), None)
    if undone is None:
        # An object that lost this revision looks like one that never had it.
        if packed and revisions:
            raise KeyError(tid)
        return None
    previous = before(revisions, tid)
    if previous is None and packed:
        raise KeyError(tid)
    if previous is None or previous.data_id is None:
        return undone, None
    return undone, origin(revisions, previous.tid)


def by_oid(objects: Iterable[tuple[bytes, bytes]]) -> dict[int, set[int]]:
    """The tids of each oid, from (tid, oid)."""
    found: dict[int, set[int]] = {}
    for tid, oid in objects:
        found.setdefault(int.from_bytes(oid), set()).add(int.from_bytes(tid))
    return found


def pointing(revisions: Sequence[Revision], gone: Set[int]) -> list[Revision]:
    """Those left of the revisions that have the data of one of the ``gone`` ones."""
    return [r for r in revisions if r.tid not in gone and r.value_tid in gone]


def repoint(revisions: Sequence[Revision], gone: Set[int]) -> list[tuple[int, int | None]]:
    """(tid, new value_tid) of those left of the ascending revisions that pointed to ``gone`` ones.

    Whether revisions go at once or one after the other, the result is the same.
    """
    heirs: dict[int, int] = {}
    changed: list[tuple[int, int | None]] = []
    for revision in revisions:
        source = revision.value_tid
        if revision.tid in gone or source is None or source not in gone:
            continue
        source = origin(revisions, source)
        if source in gone:
            changed.append((revision.tid, heirs.get(source)))
            heirs.setdefault(source, revision.tid)
        else:
            changed.append((revision.tid, source))
    return changed
