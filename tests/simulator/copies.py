"""What a database, or an archive, has: transactions and revisions, in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from neo.archive.folder import ArchiveFolder
from neo.archive.format import ArchiveError, Contents, Header, Kept, Objects, Transactions
from neo.archive.manifest import Manifest
from neo.archive.reader import read_partition
from neo.protocol.blobs import Content
from neo.protocol.ids import add64, u64
from neo.storage.backend.revisions import Revision, pack
from tests.simulator.content_volume import checksum_of
from tests.simulator.disk_check import Rows
from tests.simulator.history import History
from tests.simulator.world import Violation

#: Compression, checksum and data; None: the object does not exist.
Value = tuple[int, bytes, bytes] | None


@dataclass
class Copied:
    """``transactions``: tid → packed, and all else of the row. ``objects``: oid → tid → value."""

    transactions: dict[int, tuple[bool, tuple[Any, ...]]] = field(default_factory=dict)
    objects: dict[int, dict[int, Value]] = field(default_factory=dict)

    def add(self, oid: int, tid: int, value: Value) -> None:
        self.objects.setdefault(oid, {})[tid] = value

    def until(self, tid: int) -> Copied:
        """Return what is not later than ``tid``."""
        return Copied(
            {each: row for each, row in self.transactions.items() if each <= tid},
            {oid: {t: v for t, v in found.items() if t <= tid} for oid, found in self.objects.items()},
        )

    def packed(self, tid: int) -> Copied:
        """Return what a pack leaves. It may keep the deletion of the last object; this does not."""
        objects = {}
        for oid, found in self.objects.items():
            revisions = [Revision(t, None if found[t] is None else 0, None) for t in sorted(found)]
            removed = {revision.tid for revision in pack(revisions, tid).removed}
            objects[oid] = {t: value for t, value in found.items() if t not in removed}
        transactions = {  # a pack changes the flag
            each: (each > tid and is_packed, row)
            for each, (is_packed, row) in self.transactions.items()
        }
        return Copied(transactions, objects)

    def compare(self, what: str, expected: Copied) -> None:
        """Raise Violation unless this is equal to what is expected."""
        pairs = set(self._plain()), set(expected._plain())
        for text, (some, others) in (("misses", pairs[::-1]), ("has too much", pairs)):
            if wrong := sorted(some - others, key=str):
                shown = ", ".join(str(row)[:200] for row in wrong[:3])
                raise Violation(f"{what} {text} ({len(wrong)} rows): {shown}")

    def _plain(self) -> Iterator[tuple[Any, ...]]:
        for tid, (packed, row) in self.transactions.items():
            yield f"transaction {tid:016x}", packed, *row
        for oid, found in self.objects.items():
            for tid, value in found.items():
                yield f"object {oid:016x} at {tid:016x}", value


def of_nodes(nodes: Iterable[tuple[Rows, Sequence[int]]]) -> Copied:
    """Return what nodes have together: the tables of each, and the partitions that count."""
    found = Copied()
    for rows, partitions in nodes:
        values = {row[0]: (row[2], row[1], row[3]) for row in rows["data"]}
        for partition, tid, packed, oids, user, description, extension, ttid in rows["trans"]:
            if partition in partitions:
                texts = bytes(user), bytes(description), bytes(extension)
                found.transactions[tid] = bool(packed), (*texts, bytes(oids), ttid)
        for partition, oid, tid, data_id, _ in rows["obj"]:
            if partition in partitions:
                found.add(oid, tid, None if data_id is None else values[data_id])
    return found


@dataclass
class Archive:
    """What a chain of copies has. ``rows``: as tables of a node. ``lost``: contents that it lacks."""

    copied: Copied
    rows: Rows
    lost: set[Content]


def read(folder: ArchiveFolder, chain: Sequence[Manifest]) -> Archive:
    """Read all files of a chain. Raise Violation if one is damaged, or a content is not there."""
    copied = Copied()
    rows: Rows = {"trans": [], "obj": [], "data": [], "config": []}
    contents: set[Content] = set()
    for manifest in chain:
        for file in manifest.files:
            path = folder.partition(manifest.tid, file.partition)
            header = manifest.header(file.partition)
            kept: set[tuple[int, int]] | None = None
            try:
                for block in read_partition(folder.files, path, header, file):
                    if isinstance(block, Transactions):
                        _add_transactions(copied, rows, block)
                    elif isinstance(block, Contents):
                        contents.update(block.rows)
                    elif isinstance(block, Objects):
                        _add_objects(copied, rows, block)
                    elif isinstance(block, Kept):
                        keys = {(u64(oid), u64(tid)) for tid, oid in block.rows}
                        kept = keys if kept is None else kept | keys
            except (ArchiveError, OSError) as e:
                raise Violation(f"a complete copy cannot be read: {e}") from None
            if kept is not None and header.after is not None:
                _forget(copied, rows, header, kept)
    lost = {content for content in contents if not _has(folder, chain, content)}
    return Archive(copied, rows, lost)


def _add_transactions(copied: Copied, rows: Rows, block: Transactions) -> None:
    for tid, user, description, extension, packed, oids, ttid in block.rows:
        texts, joined = (user, description, extension), b"".join(oids)
        copied.transactions[u64(tid)] = packed, (*texts, joined, u64(ttid))
        rows["trans"].append((0, u64(tid), packed, joined, *texts, u64(ttid)))


def _add_objects(copied: Copied, rows: Rows, block: Objects) -> None:
    for oid, tid, compression, checksum, _, data, _ in block.rows:
        value: Value = None
        if compression is not None and data is not None:
            value = compression, checksum, data
            rows["data"].append((len(rows["data"]), checksum, compression, data))
        copied.add(u64(oid), u64(tid), value)
        data_id = None if value is None else len(rows["data"]) - 1
        rows["obj"].append((0, u64(oid), u64(tid), data_id, None))


def _forget(copied: Copied, rows: Rows, header: Header, kept: set[tuple[int, int]]) -> None:
    """Forget the revisions of a partition that copies before have, and this one does not name."""
    assert header.after is not None
    gone = {
        (oid, tid)
        for oid, found in copied.objects.items()
        for tid in found
        if oid % header.partitions == header.partition
        and tid <= u64(header.after)
        and (oid, tid) not in kept
    }
    for oid, tid in gone:
        del copied.objects[oid][tid]
    rows["obj"] = [row for row in rows["obj"] if (row[1], row[2]) not in gone]


def _has(folder: ArchiveFolder, chain: Sequence[Manifest], content: Content) -> bool:
    """Return whether the archive has a content. Raise Violation if it is another one."""
    for manifest in chain:
        path = folder.content(manifest.tid, content.checksum)
        if folder.files.exists(path):
            with folder.files.open(path) as file:
                data = file.read()
            if len(data) != content.size or checksum_of(data) != content.checksum.hex():
                raise Violation(f"{path} is not the content of its name")
            return True
    return False


def up_to(history: History, tid: bytes) -> History:
    """Return the part of a history that the database at ``tid`` must show."""
    part, bound = copy(history), add64(tid, 1)
    part.attempts = [a for a in history.attempts if a.tid is None or a.tid <= tid]
    part.reads = [
        replace(read, next_serial=None) if (read.next_serial or tid) > tid else read
        for read in history.reads
        if read.before <= bound
    ]
    part.listings = [listing for listing in history.listings if listing.last <= tid]
    part.snapshots = [snapshot for snapshot in history.snapshots if snapshot.last <= tid]
    part.contents = {key: each for key, each in history.contents.items() if key[1] <= tid}
    part.blobs = {key: each for key, each in history.blobs.items() if key[1] <= tid}
    return part

