"""The file of a partition is read, and everything in it is checked (specification 28.5 to 28.9)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from neo.archive import format as blocks
from neo.archive.disk import Files
from neo.archive.format import (
    ANY_FORMAT,
    DIGEST_BYTES,
    HEAD,
    MAGIC,
    PAYLOAD_MAX,
    ArchiveDamaged,
    ArchiveError,
    Block,
    Contents,
    End,
    Header,
    Objects,
    Transactions,
)
from neo.archive.manifest import PartitionFile


def read_partition(
    files: Files, path: Path, header: Header, expected: PartitionFile
) -> Iterator[Block]:
    """Yield the blocks of a file but its header. ``expected``: what its manifest says of it. Raise
    ArchiveDamaged, OSError, ArchiveError if the file was written by a newer release."""
    with files.open(path) as file:
        magic = _check_magic(path, file)
        offset, found, count = len(MAGIC), None, End()
        for block, digest, offset in _blocks(path, file, magic):
            if found is None:
                if block != header:
                    raise ArchiveDamaged(path, len(MAGIC), "it is the file of another copy or partition")
                found = header
                continue
            if isinstance(block, Header):
                raise ArchiveDamaged(path, offset, "there is a second header")
            _count(count, block)
            if isinstance(block, End):
                _check_end(path, offset, block, count, digest, expected)
                if file.read(1):
                    raise ArchiveDamaged(path, offset, "something follows its end")
                yield block
                return
            yield block
        raise ArchiveDamaged(path, offset, "its end is missing")


def _check_magic(path: Path, file: BinaryIO) -> bytes:
    magic = file.read(len(MAGIC))
    if magic != MAGIC:
        if len(magic) == len(MAGIC) and magic.startswith(ANY_FORMAT):
            raise ArchiveError(f"{path} is of another format: read it with the release that wrote it")
        raise ArchiveDamaged(path, 0, "it is not the file of a partition")
    return magic


def _blocks(path: Path, file: BinaryIO, digest: bytes) -> Iterator[tuple[Block, bytes, int]]:
    """Yield the blocks, with the digest and the offset of each."""
    offset = len(MAGIC)
    while head := file.read(HEAD.size):
        if len(head) < HEAD.size:
            raise ArchiveDamaged(path, offset, "it ends within a block")
        kind, length = HEAD.unpack(head)
        if length > PAYLOAD_MAX:
            raise ArchiveDamaged(path, offset, f"a block of {length} bytes is too long")
        data = file.read(length + DIGEST_BYTES)
        if len(data) < length + DIGEST_BYTES:
            raise ArchiveDamaged(path, offset, "it ends within a block")
        payload = memoryview(data)[:length]
        digest = blocks.digest_after(digest, head, payload)
        if digest != data[length:]:
            raise ArchiveDamaged(path, offset, "a block does not match its digest")
        try:
            block = blocks.decode(kind, payload)
        except ValueError as e:
            raise ArchiveDamaged(path, offset, f"a block is malformed: {e}") from None
        yield block, digest, offset
        offset += HEAD.size + len(data)


def _count(count: End, block: Block) -> None:
    if isinstance(block, Transactions):
        count.transactions += len(block.rows)
    elif isinstance(block, Contents):
        count.contents += len(block.rows)
    elif isinstance(block, Objects):
        count.objects += len(block.rows)


def _check_end(
    path: Path, offset: int, end: End, count: End, digest: bytes, expected: PartitionFile
) -> None:
    found = end.transactions, end.objects, end.contents
    if found != (count.transactions, count.objects, count.contents):
        raise ArchiveDamaged(path, offset, "rows are missing")
    if digest != expected.digest:
        raise ArchiveDamaged(path, offset, "it is not the file that its manifest names")
