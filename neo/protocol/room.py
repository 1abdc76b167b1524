"""Estimate what cells need on disks, for commands that move them (specification 17.36, 27.79)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from neo.protocol.packets import DiskRow

#: A disk that would be left with less than one part in so many is called full: the log of SQLite and
#: indexes need some room.
SPARE_PART = 20


def needed_bytes(
    rows: Sequence[Collection[int]], gains: Iterable[tuple[int, int]], sizes: Mapping[int, int]
) -> dict[int, int]:
    """Return about how many bytes each node gets. ``rows``: the nodes of each partition; ``gains``:
    partitions and nodes that get them; ``sizes``: bytes that nodes keep, of those that tell."""
    counts = Counter(nid for row in rows for nid in row)
    per_cell = {nid: sizes.get(nid, 0) // count for nid, count in counts.items()}
    needed: Counter[int] = Counter()
    for partition, nid in gains:
        needed[nid] += max((per_cell[source] for source in rows[partition]), default=0)
    return dict(needed)


def filled_disk(needed: int, disks: Sequence[DiskRow]) -> DiskRow | None:
    """Return the disk of a node that so many bytes would fill, if there is one."""
    if not disks:
        return None
    fullest = min(disks, key=lambda disk: disk[1])
    _, free, total = fullest
    return fullest if needed > free - total // SPARE_PART else None
