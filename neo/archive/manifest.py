"""The manifest of a copy (specification 28.10 to 28.13): JSON that protects itself with a digest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from blake3 import blake3
from msgspec import Struct

from neo.archive.format import (
    ArchiveDamaged,
    ArchiveError,
    Digest,
    Header,
    Last,
    TransactionRow,
    last_of,
)
from neo.protocol.packets import Count, Number, Tid

FORMAT = 1
NAME = "manifest.json"
#: Fields whose bytes are hexadecimal digits in the file.
_HEX = {"after", "after_digest", "digest", "pack", "tid"}


class PartitionFile(Struct, frozen=True, forbid_unknown_fields=True):
    """What a storage node reports of a file that it wrote. ``digest``: the last one of the file.
    ``lost``: the number of contents that the cluster had lost. ``last``: the last transaction of the
    partition, in this copy or in one before."""

    partition: Count
    size: Number
    digest: Digest
    transactions: Number
    objects: Number
    contents: Number
    lost: Number
    last: Last | None


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """A complete copy. ``after``: the copy before it, None for a full copy; ``after_digest``: of that
    copy's manifest. ``pack``: the greatest pack that the cluster was asked for. ``files``: by partition.
    ``digest``: of all the rest."""

    format: int
    cluster: str
    tid: Tid
    after: Tid | None
    after_digest: Digest | None
    partitions: Count
    pack: Tid | None
    files: list[PartitionFile]
    digest: Digest

    def header(self, partition: int) -> Header:
        """Return the header of a partition's file."""
        return Header(self.cluster, partition, self.partitions, self.after, self.tid)


def new_manifest(
    cluster: str,
    tid: bytes,
    files: Sequence[PartitionFile],
    pack: bytes | None,
    previous: Manifest | None,
) -> Manifest:
    """Return the manifest of a copy whose files are complete. Raise ArchiveError."""
    files = sorted(files, key=lambda file: file.partition)
    if not files or [file.partition for file in files] != list(range(len(files))):
        raise ArchiveError(
            "a copy needs one file of each partition, and there are those of"
            f" {', '.join(str(file.partition) for file in files) or 'none'}: start the copy again"
        )
    if pack is not None and pack > tid:
        raise ArchiveError(
            f"a pack at {show(pack)} may have removed revisions that a copy at {show(tid)} needs: start"
            " the copy again"
        )
    if previous is not None:
        check_continues(previous, cluster, len(files), tid)
    after, after_digest = (previous.tid, previous.digest) if previous else (None, None)
    head = FORMAT, cluster, tid, after, after_digest, len(files), pack, files
    return Manifest(*head, _digest(Manifest(*head, bytes(32))))


def check_continues(previous: Manifest, cluster: str, partitions: int, tid: bytes) -> None:
    """Raise ArchiveError if an incremental copy at ``tid`` cannot follow this one."""
    if (previous.cluster, previous.partitions) != (cluster, partitions):
        raise ArchiveError(
            f"the copy at {show(previous.tid)} is of cluster {previous.cluster!r} with"
            f" {previous.partitions} partitions, and this is {cluster!r} with {partitions}: use another"
            " folder"
        )
    if previous.tid >= tid:
        raise ArchiveError(
            f"the copy at {show(previous.tid)} has all up to {show(tid)} already: nothing is to be copied"
        )


def check_history(partition: int, last: Last | None, found: TransactionRow | None) -> None:
    """Raise ArchiveError unless the last transaction of a copy is still in the database. ``found``: the
    transaction that the database has at the tid of ``last``."""
    if last is not None and (found is None or last_of(found) != last):
        raise ArchiveError(
            f"transaction {show(last.tid)} of the last copy is not in partition {partition} any more:"
            " the database was truncated or replaced, so make a full copy"
        )


def encode(manifest: Manifest) -> bytes:
    """Return the file of a manifest."""
    plain = msgspec.to_builtins(manifest, builtin_types=(bytes,))
    return json.dumps(plain, indent=1, default=bytes.hex).encode() + b"\n"


def decode(path: object, data: bytes) -> Manifest:
    """Return the manifest in a file. Raise ArchiveDamaged; ArchiveError if its format is newer."""
    try:
        plain = json.loads(data, object_hook=_with_bytes)
        if isinstance(plain, dict) and isinstance(found := plain.get("format"), int) and found > FORMAT:
            raise ArchiveError(f"{path} has format {found}: read it with a newer release")
        manifest = msgspec.convert(plain, Manifest, builtin_types=(bytes,))
    except (ValueError, TypeError, RecursionError) as e:
        raise ArchiveDamaged(path, 0, f"it is not a manifest ({e})") from None
    if encode(manifest) != data or manifest.digest != _digest(manifest):
        raise ArchiveDamaged(path, 0, "it does not match its digest")
    return manifest


def show(tid: bytes) -> str:
    """Return a tid as operators type it."""
    return f"0x{tid.hex()}"


def _digest(manifest: Manifest) -> bytes:
    return blake3(encode(msgspec.structs.replace(manifest, digest=bytes(32)))).digest()


def _with_bytes(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: bytes.fromhex(value) if name in _HEX and value is not None else value
        for name, value in fields.items()
    }
