"""Files of partitions are what was written, or the damage is found (specification 28.4 to 28.9)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neo.archive import format as blocks
from neo.archive.disk import OS_FILES
from neo.archive.folder import ArchiveFolder
from neo.archive.format import (
    ArchiveDamaged,
    ArchiveError,
    Contents,
    End,
    Header,
    Objects,
    Transactions,
)
from neo.archive.manifest import PartitionFile
from neo.archive.reader import read_partition
from neo.archive.writer import PartitionWriter
from neo.protocol.ids import p64
from tests.unit.archive.copies import (
    CLUSTER,
    PARTITIONS,
    Source,
    blob,
    content_of,
    revision,
    transaction,
)

TID = 9


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveFolder:
    return ArchiveFolder(str(tmp_path / "archive"))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "source")


def header(partition: int = 1, tid: int = TID) -> Header:
    return Header(CLUSTER, partition, PARTITIONS, None, p64(tid))


def small(archive: ArchiveFolder, source: Source) -> tuple[Path, PartitionFile]:
    source.contents = {5: b"content"}
    file = source.write(archive, 1, [3, 5, 9], TID)
    return archive.partition(p64(TID), 1), file


def read(path: Path, file: PartitionFile, partition: int = 1) -> list[Any]:
    return list(read_partition(OS_FILES, path, header(partition), file))


def test_a_file_has_what_was_written(archive: ArchiveFolder, source: Source) -> None:
    path, file = small(archive, source)
    rows = [revision(3, 3), revision(5, 5), blob(7, 5, b"content"), revision(9, 9)]
    found = read(path, file)
    assert found[:-1] == [
        Transactions([transaction(tid) for tid in (3, 5, 9)]),
        Contents([content_of(b"content")]),
        Objects(rows),
    ]
    end = found[-1]
    assert (end.transactions, end.objects, end.contents, end.lost) == (3, 4, 1, [])
    assert end.last == blocks.last_of(transaction(9)) == file.last
    content = archive.content(p64(TID), content_of(b"content").checksum)
    assert content.read_bytes() == b"content"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 500))
def test_blocks_of_any_length(
    tmp_path_factory: pytest.TempPathFactory, values: list[bytes], length: int
) -> None:
    """Specification 28.8."""
    archive = ArchiveFolder(str(tmp_path_factory.mktemp("archive")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", length)
        archive.begin(p64(TID))
        writer = PartitionWriter(archive, header(), [], "S1")
        rows = [revision(1, number, value) for number, value in enumerate(values)]
        for _ in rows:
            writer.transactions([transaction(8)])
        for row in rows:
            writer.objects([row], {})
        file = writer.finish(None)
    found = read(archive.partition(p64(TID), 1), file)
    assert [row for block in found if isinstance(block, Objects) for row in block.rows] == rows
    assert found[-1].transactions == len(rows)


def test_every_truncation_is_found(archive: ArchiveFolder, source: Source) -> None:
    path, file = small(archive, source)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(ArchiveDamaged):
            read(path, file)


def test_every_changed_byte_is_found(archive: ArchiveFolder, source: Source) -> None:
    path, file = small(archive, source)
    data = path.read_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(ArchiveError):
            read(path, file)


def test_blocks_that_are_moved_repeated_or_removed_are_found(
    archive: ArchiveFolder, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    path, file = small(archive, source)
    data = path.read_bytes()
    parts, place = [], len(blocks.MAGIC)
    while place < len(data):
        _, length = blocks.HEAD.unpack_from(data, place)
        end = place + blocks.HEAD.size + length + blocks.DIGEST_BYTES
        parts.append(data[place:end])
        place = end
    assert len(parts) > 5
    changes: list[Callable[[list[bytes]], object]] = [
        lambda p: p.insert(2, p.pop(3)),
        lambda p: p.insert(2, p[2]),
        lambda p: p.pop(3),
        lambda p: p.append(p[-1]),
    ]
    for change in changes:
        changed = parts.copy()
        change(changed)
        path.write_bytes(blocks.MAGIC + b"".join(changed))
        with pytest.raises(ArchiveDamaged):
            read(path, file)


def test_the_file_of_another_partition_or_copy_is_found(
    archive: ArchiveFolder, source: Source
) -> None:
    """Specification 28.9."""
    path, file = small(archive, source)
    with pytest.raises(ArchiveDamaged, match="another copy or partition"):
        read(path, file, 0)
    source.contents = {}
    other = source.write(archive, 1, [3, 9], TID)
    assert other.digest != file.digest
    with pytest.raises(ArchiveDamaged, match="not the file that its manifest names"):
        read(path, file)


def test_a_file_of_a_later_release_is_refused(archive: ArchiveFolder, source: Source) -> None:
    path, file = small(archive, source)
    path.write_bytes(path.read_bytes().replace(b"format 1\n", b"format 2\n", 1))
    with pytest.raises(ArchiveError, match="read it with the release that wrote it"):
        read(path, file)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_content_that_is_missing_or_damaged_is_lost(
    archive: ArchiveFolder, source: Source, damaged: bool
) -> None:
    """Specification 28.7."""
    archive.begin(p64(TID))
    writer = PartitionWriter(archive, header(), [], "S1")
    path = source.file(b"content")
    if damaged:
        path.write_bytes(b"c0ntent")
    writer.objects([blob(1, 9, b"content")], {content_of(b"content"): path if damaged else None})
    file = writer.finish(None)
    assert file.lost == 1
    (*_, end) = read(archive.partition(p64(TID), 1), file)
    assert isinstance(end, End) and end.lost == [content_of(b"content")]


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
def test_a_failure_of_any_call_leaves_no_file(
    archive: ArchiveFolder, source: Source, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Specification 28.4. Also without room on the disk."""
    original, number, failed = getattr(os, name), 0, True
    while failed:
        number += 1
        left, failed = number, False

        def call(*arguments: Any) -> Any:
            nonlocal left, failed
            left -= 1
            if left == 0:
                failed = True
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(*arguments)

        monkeypatch.setattr(os, name, call)
        try:
            small(archive, source)
        except OSError as e:
            assert "no space is left for the archive" in str(e)
        monkeypatch.setattr(os, name, original)
        if failed:
            assert not archive.partition(p64(TID), 1).exists() or name == "fsync"  # of the folder
            archive.remove(p64(TID))
            assert archive.tids() == []
    assert number > 2
    read(archive.partition(p64(TID), 1), small(archive, source)[1])


def test_two_nodes_may_add_the_same_content(archive: ArchiveFolder, source: Source) -> None:
    archive.begin(p64(TID))
    writers = [PartitionWriter(archive, header(n), [], f"S{n}") for n in range(2)]
    for number, writer in enumerate(writers):
        rows = [blob(number, 9, b"shared")]
        writer.objects(rows, {content_of(b"shared"): source.file(b"shared")})
    assert [writer.finish(None).lost for writer in writers] == [0, 0]


def test_an_aborted_file_leaves_nothing(archive: ArchiveFolder, source: Source) -> None:
    archive.begin(p64(TID))
    writer = PartitionWriter(archive, header(), [], "S1")
    writer.transactions([transaction(9)])
    writer.abort()
    writer.abort()
    assert [path for path in archive.path.rglob("*") if path.is_file()] == []


def test_a_content_that_an_interrupted_attempt_kept_is_made_durable_28_4(
    archive: ArchiveFolder, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file has its name, which the attempt had not synced."""
    small(archive, source)
    content = archive.content(p64(TID), content_of(b"content").checksum)
    synced: list[Path] = []
    monkeypatch.setattr("neo.archive.writer.sync_folder", lambda files, path: synced.append(path))
    small(archive, source)
    assert content.parent in synced
