"""All files of an archive are compared with their digests (specification 28.18 to 28.20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from blake3 import blake3

from neo.archive.disk import Files, read_pieces
from neo.archive.folder import ArchiveFolder
from neo.archive.format import ArchiveError, Contents
from neo.archive.manifest import Manifest, PartitionFile
from neo.archive.reader import read_partition
from neo.protocol.blobs import Content

#: Called with the bytes of a partition's file when it was read, with the contents to which it refers.
Read = Callable[[int], None]


def verify_partition(
    folder: ArchiveFolder, chain: Sequence[Manifest], file: PartitionFile, read: Read
) -> Iterator[str]:
    """Yield what is wrong with the file of a partition of the last copy of a chain, and with the contents
    to which it refers."""
    copy = chain[-1]
    path = folder.partition(copy.tid, file.partition)
    lost = file.lost
    try:
        for block in read_partition(folder.files, path, copy.header(file.partition), file):
            if isinstance(block, Contents):
                for content in block.rows:
                    found = _content(folder, chain, content)
                    if found is None and lost:
                        lost -= 1  # the manifest says so
                    elif found is None:
                        yield f"{path}: {_missing(content)}"
                    elif found:
                        yield found
    except (ArchiveError, OSError) as e:
        yield str(e)
    read(file.size)


def _content(folder: ArchiveFolder, chain: Sequence[Manifest], content: Content) -> str | None:
    """Return what is wrong with a content, '' if it is intact; None if there is no file."""
    for copy in chain:
        path = folder.content(copy.tid, content.checksum)
        if folder.files.exists(path):
            return _damage(folder.files, path, content)
    return None


def _damage(files: Files, path: Path, content: Content) -> str:
    digest, size = blake3(), 0
    for piece in read_pieces(files, path):
        digest.update(piece)
        size += len(piece)
    if size != content.size or digest.digest() != content.checksum:
        return f"{path} is damaged: it is not the content that its name says; restore this file"
    return ""


def _missing(content: Content) -> str:
    return f"the file of content {content.checksum.hex()} is missing: restore it"
