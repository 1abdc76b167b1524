"""Which copies restore a moment (specification 28.14 to 28.17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from neo.archive.format import ArchiveDamaged, ArchiveError
from neo.archive.manifest import Manifest, show
from neo.protocol.ids import ZERO_TID, tid_from_time

#: No ZODB is older. A smaller tid was meant to be a number of seconds, or lost some digits.
EARLIEST = tid_from_time(0)


class Chain(NamedTuple):
    """``copies``: a full one, and those that follow it. ``until``: the moment that is restored.
    ``pack``: the pack that the restored database is asked for."""

    copies: list[Manifest]
    until: bytes
    pack: bytes | None


def select(
    found: Mapping[bytes, Manifest | ArchiveDamaged], at: bytes | None = None
) -> Chain:
    """Return the copies that restore a moment, by default that of the newest copy. ``found``: the copies
    by tid; a manifest may be damaged. Raise ArchiveError.

    The copy that was made at this moment is preferred: a truncation since then may have removed what it
    has. Otherwise the newest copy that has the moment counts.
    """
    if not found:
        raise ArchiveError("there is no complete copy here: is this the folder of an archive?")
    clusters = sorted({copy.cluster for copy in found.values() if isinstance(copy, Manifest)})
    if len(clusters) > 1:
        raise ArchiveError(
            f"there are copies of several clusters here ({', '.join(clusters)}): move those of each to a"
            " folder of its own"
        )
    until = max(found) if at is None else at
    if until < EARLIEST <= max(found):
        raise ArchiveError(
            f"the moment {show(until)} is before 1970: nothing would be restored; a time is written in"
            " seconds since 1970, with a dot"
        )
    last = until if until in found else _covering(found, until)
    copies = [_intact(found[last])]
    while (after := copies[0].after) is not None:
        if after not in found:
            raise ArchiveError(
                f"the copy at {show(copies[0].tid)} follows the one at {show(after)}, which is not here:"
                " bring it back, or restore from a full copy"
            )
        copy = _intact(found[after])
        if (copy.digest, copy.partitions) != (copies[0].after_digest, copies[0].partitions):
            raise ArchiveError(
                f"the copy at {show(copies[0].tid)} does not follow the one at {show(after)} that is"
                " here: bring back the copy that it follows, or restore from a full copy"
            )
        copies.insert(0, copy)
    return Chain(copies, until, copies[-1].pack)


def _intact(copy: Manifest | ArchiveDamaged) -> Manifest:
    if isinstance(copy, ArchiveDamaged):
        raise copy
    return copy


def _covering(found: Mapping[bytes, Manifest | ArchiveDamaged], at: bytes) -> bytes:
    """Return the tid of the newest copy with a moment between two copies."""
    if at > max(found):
        raise ArchiveError(
            f"the newest copy is that at {show(max(found))}: choose a moment up to it, not {show(at)}"
        )
    copies = [copy for copy in found.values() if isinstance(copy, Manifest)]
    around = [copy for copy in copies if (copy.after or ZERO_TID) < at < copy.tid]
    intact = [copy.tid for copy in around if not _packed_away(copy, at)]
    if intact:
        return max(intact)
    if around:
        packs = min(copy.pack for copy in around if copy.pack is not None)
        raise ArchiveError(
            f"a pack at {show(packs)} had removed revisions of {show(at)} when the next copy was made:"
            f" choose {show(packs)}, a later moment, or that of a copy"
        )
    raise ArchiveError(
        f"the oldest copy is that at {show(min(found))}, and no intact one has {show(at)}: choose a later"
        " moment"
    )


def _packed_away(copy: Manifest, at: bytes) -> bool:
    """Return whether a pack may have removed what the copy lacks of an earlier moment. A pack up to the
    copy before removes nothing that this copy would add."""
    return copy.pack is not None and copy.pack > max(at, copy.after or ZERO_TID)
