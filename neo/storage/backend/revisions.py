"""Undo and pack of the revisions of one object, as pure functions.

The *origin* of a revision is the serial of the revision whose data it has: its own serial, or for an
undo the one to which the chain of ``value_tid`` leads. A revision without data (``data_id`` None)
means that the object does not exist: its creation was undone, or it was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple


class Revision(NamedTuple):
    """A row of ``obj`` of one object."""

    tid: int
    data_id: int | None
    value_tid: int | None


def origin(revisions: Sequence[Revision], tid: int) -> int:
    """Return the origin of the revision at ``tid``, as far as the given revisions show it."""
    by_tid = {revision.tid: revision for revision in revisions}
    while (value_tid := by_tid[tid].value_tid) is not None and value_tid in by_tid:
        # A valid chain only points backwards. Stop at a damaged link, so that the loop ends.
        if value_tid >= tid:
            break
        tid = value_tid
    return tid


def before(revisions: Sequence[Revision], tid: int) -> Revision | None:
    """Return the last of the ascending revisions that is older than ``tid``."""
    return next((r for r in reversed(revisions) if r.tid < tid), None)


class Packed(NamedTuple):
    """The effect of a pack on one object."""

    removed: list[Revision]
    #: (tid, new value_tid) of revisions that pointed to removed ones.
    changed: list[tuple[int, int | None]]


def never() -> bool:
    """Return False: a greater oid of the partition has revisions, so this object is not the last."""
    return False


def pack(
    revisions: Sequence[Revision], tid: int, is_last: Callable[[], bool] = never
) -> Packed:
    """Remove the ascending revisions before the last one up to ``tid``.

    Remove that one too if the object did not exist at ``tid``, unless ``is_last()``: no greater oid
    of the partition has revisions up to ``tid``. A later master allocates oids above the greatest one
    that is left. So it never reuses the oid of a removed object, of which clients may have a copy.

    Of the revisions that shared the data of a removed one, the first one left becomes the origin.
    """
    kept = before(revisions, tid + 1)
    if kept is None:
        return Packed([], [])
    first = revisions.index(kept) + (kept.data_id is None and not is_last())
    removed = list(revisions[:first])
    return Packed(removed, repoint(revisions, {revision.tid for revision in removed}))


@dataclass
class LookAhead:
    """How far the steps of one pack of a partition looked for revisions up to its tid behind a deletion,
    which stays if there are none (specification 12.25): none from behind ``oid`` to ``until``."""

    oid: int = -1
    until: int = -1


def packed_value(revisions: Sequence[Revision], serial: int, tid: int) -> int | None:
    """Return ``value_tid`` of revision ``serial`` after a pack up to ``tid``.

    Raise KeyError if there is no such revision.
    """
    values = {revision.tid: revision.value_tid for revision in revisions}
    if serial not in values:
        raise KeyError(serial)
    values.update(pack(revisions, tid).changed)
    return values[serial]


def packed_undo(revisions: Sequence[Revision], value_tid: int, tid: int) -> int | None:
    """Return ``value_tid`` that an undo to ``value_tid``, later than all revisions, has after a pack up
    to ``tid``."""
    later = Revision(max(tid, *(revision.tid for revision in revisions), 0) + 1, None, value_tid)
    return packed_value([*revisions, later], later.tid, tid)


def undo(revisions: Sequence[Revision], tid: int, packed: bool) -> tuple[Revision, int | None] | None:
    """Return the revision to undo, and the origin of the restored state (None: the object is deleted).

    Return None if there is nothing to undo. ``packed``: revisions up to ``tid`` may be gone. Raise
    KeyError if a needed revision may be.
    """
    undone = next((r for r in revisions if r.tid == tid), None)
    if undone is None:
        # A pack may have removed this revision, or the object never had it.
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
    """Group (tid, oid) by oid, as integers."""
    found: dict[int, set[int]] = {}
    for tid, oid in objects:
        found.setdefault(int.from_bytes(oid), set()).add(int.from_bytes(tid))
    return found


def pointing(revisions: Sequence[Revision], gone: Set[int]) -> list[Revision]:
    """Return the remaining revisions that have the data of one of the ``gone`` ones."""
    return [r for r in revisions if r.tid not in gone and r.value_tid in gone]


def repoint(revisions: Sequence[Revision], gone: Set[int]) -> list[tuple[int, int | None]]:
    """Return (tid, new value_tid) of the remaining revisions that pointed to ``gone`` ones.

    ``revisions`` are ascending. The result does not depend on the number of steps of the deletion.
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
