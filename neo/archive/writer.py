"""The file of a partition is written (specification 28.5 to 28.9)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from blake3 import blake3

from neo.archive import format as blocks
from neo.archive.disk import PartFile, make_folder, read_pieces, sync_folder
from neo.archive.folder import ArchiveFolder
from neo.archive.format import (
    CONTENTS,
    HEADER,
    KEPT,
    MAGIC,
    OBJECTS,
    TRANSACTIONS,
    BlockEncoder,
    End,
    Header,
    Last,
    TransactionRow,
)
from neo.archive.manifest import PartitionFile
from neo.protocol.blobs import Content
from neo.protocol.packets import RevisionRow


class PartitionWriter:
    """Takes rows in the order of their tids, transactions before objects. ``before``: tids of the copies
    that this one follows. ``writer``: tells apart nodes that add the same content. Methods raise OSError,
    and :meth:`abort` follows. All of it is in one thread."""

    def __init__(
        self, folder: ArchiveFolder, header: Header, before: Sequence[bytes], writer: str
    ) -> None:
        self._folder = folder
        self._header = header
        self._before = before
        self._writer = f".{writer}"
        self._blocks = BlockEncoder()
        self._transactions: list[TransactionRow] = []
        self._objects: list[RevisionRow] = []
        self._size = 0
        self._end = End()
        self._lost: set[Content] = set()
        #: Folders of contents that are there, and are synced at the end.
        self._buckets: set[Path] = set()
        self._file = PartFile(
            folder.files, folder.partition(header.tid, header.partition), self._writer
        )
        self._file.write(MAGIC)
        self._write(HEADER, header)

    def _write(self, kind: bytes, value: object) -> None:
        self._file.write(self._blocks.encode(kind, value))

    def transactions(self, rows: Sequence[TransactionRow]) -> None:
        """Append transactions."""
        self._transactions += rows
        self._size += sum(blocks.sizes_of_transactions(rows))
        self._end.transactions += len(rows)
        if rows:
            self._end.last = blocks.last_of(rows[-1])
        if self._size >= blocks.BLOCK_BYTES:
            self._flush()

    def objects(self, rows: Sequence[RevisionRow], sources: dict[Content, Path | None]) -> None:
        """Append revisions. ``sources``: the files of the contents to which they refer, None for one that
        is lost."""
        if self._transactions:
            self._flush()
        for content, source in sources.items():
            self._add(content, source)
        self._objects += rows
        self._size += sum(blocks.sizes_of_objects(rows))
        self._end.objects += len(rows)
        if self._size >= blocks.BLOCK_BYTES:
            self._flush()

    def kept(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Append revisions (tid, oid) of the copies before that are still there, after all objects. What
        is not appended is gone: so call it also if there is none."""
        self._flush()
        self._write(KEPT, rows)

    def _flush(self) -> None:
        if self._transactions:
            self._write(TRANSACTIONS, self._transactions)
            self._transactions = []
        if self._objects:
            contents = sorted(blocks.contents_of(self._objects))
            if contents:
                self._write(CONTENTS, contents)
                self._end.contents += len(contents)
            self._write(OBJECTS, self._objects)
            self._objects = []
        self._size = 0

    def _add(self, content: Content, source: Path | None) -> None:
        """Copy a content, unless this copy, or one before it, has it. A source that is missing or damaged
        is lost."""
        checksum, tid, files = content.checksum, self._header.tid, self._folder.files
        target = self._folder.content(tid, checksum)
        if any(files.exists(self._folder.content(each, checksum)) for each in self._before):
            return
        kept = files.exists(target)
        if source is None and not kept:
            self._lost.add(content)
            return
        if target.parent not in self._buckets:
            make_folder(files, target.parent)
            self._buckets.add(target.parent)
        if kept or source is None:
            # An interrupted attempt may have kept it without syncing its name, which finish() does.
            return
        writer, found = f"{self._writer}-{self._header.partition}", blake3()
        file = PartFile(files, target, writer)
        try:
            for piece in read_pieces(files, source):
                found.update(piece)
                file.write(piece)
        except FileNotFoundError:
            pass
        except BaseException:
            file.drop()
            raise
        if found.digest() == checksum and file.size == content.size:
            file.keep()
        else:
            file.drop()
            self._lost.add(content)

    def finish(self, last: Last | None) -> PartitionFile:
        """Make the file durable and give it its name. ``last``: the last transaction of the copies
        before."""
        self._flush()
        end = self._end
        end.last = end.last or last
        end.lost = sorted(self._lost)
        self._write(blocks.END, end)
        for bucket in self._buckets:
            sync_folder(self._folder.files, bucket)
        self._file.keep()
        sync_folder(self._folder.files, self._file.target.parent)
        return PartitionFile(
            partition=self._header.partition,
            size=self._file.size,
            digest=self._blocks.digest,
            transactions=end.transactions,
            objects=end.objects,
            contents=end.contents,
            lost=len(self._lost),
            last=end.last,
        )

    def abort(self) -> None:
        """Remove what was written of the file. Idempotent."""
        self._file.drop()
