"""Small copies of a database with two partitions, made as storage nodes make them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path

from neo.archive.folder import ArchiveFolder
from neo.archive.format import Header, Last, TransactionRow
from neo.archive.manifest import Manifest, PartitionFile, new_manifest
from neo.archive.writer import PartitionWriter
from neo.protocol.blobs import Content, content_hash, with_content
from neo.protocol.ids import p64
from neo.protocol.packets import RevisionRow

CLUSTER, PARTITIONS = "shop", 2


def transaction(tid: int) -> TransactionRow:
    return p64(tid), b"user", b"text %d" % tid, b"", False, [p64(tid), p64(tid + 2)], p64(tid - 1)


def revision(oid: int, tid: int, data: bytes | None = None) -> RevisionRow:
    data = b"data of %d at %d" % (oid, tid) if data is None else data
    return p64(oid), p64(tid), 0, sha1(data).digest(), len(data), data, None


def content_of(data: bytes) -> Content:
    digest = content_hash()
    digest.update(data)
    return Content(len(data), digest.digest())


def blob(oid: int, tid: int, data: bytes) -> RevisionRow:
    """A revision with a content."""
    return revision(oid, tid, with_content(b"pickle", content_of(data)))


class Source:
    """``tids`` have a transaction each; each object of it has its content in ``contents``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.contents: dict[int, bytes] = {}

    def file(self, data: bytes) -> Path:
        path = self.folder / content_of(data).checksum.hex()
        path.write_bytes(data)
        return path

    def write(
        self,
        archive: ArchiveFolder,
        partition: int,
        tids: Sequence[int],
        tid: int,
        chain: Sequence[Manifest] = (),
        lose: bool = False,
    ) -> PartitionFile:
        """Write the file of a partition with these transactions. ``lose``: contents have no file."""
        after = chain[-1].tid if chain else None
        header = Header(CLUSTER, partition, PARTITIONS, after, p64(tid))
        archive.begin(p64(tid))
        before = [copy.tid for copy in chain]
        writer = PartitionWriter(archive, header, before, "S1")
        mine = [each for each in tids if each % PARTITIONS == partition]
        writer.transactions([transaction(each) for each in mine])
        for each in mine:
            rows = [revision(each, each)]
            sources: dict[Content, Path | None] = {}
            if (data := self.contents.get(each)) is not None:
                rows.append(blob(each + 2, each, data))
                sources[content_of(data)] = None if lose else self.file(data)
            writer.objects(rows, sources)
        last: Last | None = chain[-1].files[partition].last if chain else None
        return writer.finish(last)

    def copy(
        self,
        archive: ArchiveFolder,
        tids: Sequence[int],
        chain: Sequence[Manifest] = (),
        pack: int | None = None,
        lose: bool = False,
    ) -> Manifest:
        """Write a complete copy at the last of these tids."""
        files = [
            self.write(archive, partition, tids, tids[-1], chain, lose)
            for partition in range(PARTITIONS)
        ]
        previous = chain[-1] if chain else None
        packed = None if pack is None else p64(pack)
        made = new_manifest(CLUSTER, p64(tids[-1]), files, packed, previous)
        archive.finish(made, "S1")
        return made
