"""Which copies are complete, follow each other, and restore a moment (specification 28.1 to 28.4, 28.10
to 28.20)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neo.archive import manifest as manifests
from neo.archive.chain import select
from neo.archive.folder import ArchiveFolder
from neo.archive.format import ArchiveDamaged, ArchiveError
from neo.archive.manifest import NAME, Manifest, check_continues, check_history, new_manifest
from neo.archive.verify import verify_partition
from neo.protocol.ids import p64, tid_from_time, u64
from tests.unit.archive.copies import CLUSTER, Source, content_of, transaction


class Archive(ArchiveFolder):
    """An archive with a full copy at 10, and two that follow it, at 20 and 30."""

    def __init__(self, path: Path, packs: tuple[int | None, ...] = (None, None, None)) -> None:
        super().__init__(str(path / "archive"))
        self.source = source = Source(path / "source")
        source.contents = {4: b"old", 14: b"new", 15: b"old"}
        first = source.copy(self, range(3, 11), pack=packs[0])
        second = source.copy(self, range(11, 21), [first], packs[1])
        self.copies = [first, second, source.copy(self, range(21, 31), [first, second], packs[2])]

    def damage(self, number: int) -> list[str]:
        """Verify the chain of a copy."""
        chain = self.copies[: number + 1]
        return [
            problem
            for file in chain[-1].files
            for problem in verify_partition(self, chain, file, lambda size: None)
        ]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def restored(archive: Archive, at: int | None) -> tuple[list[int], int]:
    """Return the copies that restore a moment, and the moment."""
    chain = select(archive.complete(), None if at is None else p64(at))
    tids = [int.from_bytes(copy.tid, "big") for copy in chain.copies]
    return tids, int.from_bytes(chain.until, "big")


# -- the folder ------------------------------------------------------------------------------------


def test_copies_are_found_and_chained(archive: Archive) -> None:
    assert list(archive.complete().values()) == archive.copies
    assert archive.newest(CLUSTER) == archive.copies[2]
    assert archive.chain(archive.copies[2]) == archive.copies


def test_a_copy_has_no_content_of_those_before(archive: Archive) -> None:
    """Specification 28.3."""
    for data, copies in ((b"old", [True, False, False]), (b"new", [False, True, False])):
        checksum = content_of(data).checksum
        assert [archive.content(copy.tid, checksum).exists() for copy in archive.copies] == copies


def test_a_copy_without_manifest_is_incomplete(archive: Archive) -> None:
    """Specification 28.4."""
    archive.source.write(archive, 0, [31, 32], 40)
    assert p64(40) in archive.tids() and p64(40) not in archive.complete()
    assert archive.newest(CLUSTER) == archive.copies[2]
    archive.remove(p64(40))
    archive.remove(p64(40))
    assert p64(40) not in archive.tids()


def test_a_folder_that_is_missing_has_no_copies(tmp_path: Path) -> None:
    folder = ArchiveFolder(str(tmp_path / "nothing"))
    assert folder.tids() == [] and folder.newest(CLUSTER) is None


def test_the_copies_of_another_cluster_are_refused(archive: Archive) -> None:
    with pytest.raises(ArchiveError, match="cluster 'shop', and this is 'other'"):
        archive.newest("other")


def test_a_chain_with_a_missing_or_changed_copy_is_refused(archive: Archive) -> None:
    """Specification 28.17."""
    archive.remove(p64(10))
    with pytest.raises(ArchiveError, match="make a full copy"):
        archive.chain(archive.copies[2])
    archive.source.copy(archive, range(4, 11))
    with pytest.raises(ArchiveError, match="not here as it was"):
        archive.chain(archive.copies[2])
    with pytest.raises(ArchiveError, match="does not follow the one at"):
        select(archive.complete())


# -- manifests -------------------------------------------------------------------------------------


def test_every_change_of_a_manifest_is_found(archive: Archive) -> None:
    """Specification 28.10, 28.11."""
    path = archive.copy(p64(20)) / NAME
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            found = archive.manifest(p64(20))
        except ArchiveError as e:
            assert "newer release" in str(e)
        else:
            assert isinstance(found, ArchiveDamaged)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert isinstance(archive.manifest(p64(20)), ArchiveDamaged)


def test_a_newer_format_is_refused(archive: Archive) -> None:
    path = archive.copy(p64(20)) / NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(ArchiveError, match="has format 2: read it with a newer release"):
        archive.manifest(p64(20))


def test_a_manifest_in_the_folder_of_another_copy_is_found(archive: Archive) -> None:
    data = (archive.copy(p64(20)) / NAME).read_bytes()
    (archive.copy(p64(30)) / NAME).write_bytes(data)
    assert isinstance(archive.manifest(p64(30)), ArchiveDamaged)


def test_a_copy_needs_a_file_of_each_partition(archive: Archive) -> None:
    files = archive.copies[0].files
    for some in ([], files[:0], files[1:], [files[0], files[0]]):
        with pytest.raises(ArchiveError, match="one file of each partition"):
            new_manifest(CLUSTER, p64(10), some, None, None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (("other", 2, 40), "use another folder"),
        ((CLUSTER, 3, 40), "use another folder"),
        ((CLUSTER, 2, 30), "nothing is to be copied"),
        ((CLUSTER, 2, 29), "nothing is to be copied"),
    ],
)
def test_what_cannot_follow_is_refused(archive: Archive, changes: Any, why: str) -> None:
    """Specification 28.12."""
    cluster, partitions, tid = changes
    with pytest.raises(ArchiveError, match=why):
        check_continues(archive.copies[2], cluster, partitions, p64(tid))


def test_a_database_that_was_truncated_is_found(archive: Archive) -> None:
    """Specification 28.13."""
    last = archive.copies[2].files[0].last
    assert last is not None
    check_history(0, last, transaction(30))
    check_history(0, None, None)
    for found in (None, transaction(28)):
        with pytest.raises(ArchiveError, match="make a full copy"):
            check_history(0, last, found)


# -- moments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "tids"),
    [
        (None, [10, 20, 30]),
        (30, [10, 20, 30]),
        (25, [10, 20, 30]),
        (20, [10, 20]),
        (11, [10, 20]),
        (10, [10]),
        (4, [10]),
    ],
)
def test_a_moment_is_restored_from_the_copies_that_have_it(
    archive: Archive, at: int | None, tids: list[int]
) -> None:
    """Specification 28.14."""
    assert restored(archive, at) == (tids, 30 if at is None else at)


def test_a_time_without_its_dot_restores_no_empty_database_28_22(tmp_path: Path) -> None:
    archive = ArchiveFolder(str(tmp_path / "archive"))
    tid = u64(tid_from_time(1795171600))
    Source(tmp_path / "source").copy(archive, [tid, tid + 1])
    with pytest.raises(ArchiveError, match="before 1970.*with a dot"):
        select(archive.complete(), p64(1795171600))
    assert select(archive.complete(), p64(tid)).until == p64(tid)


def test_a_moment_after_the_newest_copy_is_refused(archive: Archive) -> None:
    with pytest.raises(ArchiveError, match="the newest copy is that at 0x000000000000001e"):
        restored(archive, 31)


def test_a_moment_before_a_pack_between_two_copies_is_refused(tmp_path: Path) -> None:
    """Specification 28.15: the pack at 15 came before the copy at 20."""
    archive = Archive(tmp_path, (None, 15, 15))
    with pytest.raises(ArchiveError, match="choose 0x000000000000000f, a later moment"):
        restored(archive, 12)
    assert restored(archive, 15) == ([10, 20], 15)
    assert restored(archive, 25) == ([10, 20, 30], 25)


def test_an_archive_without_a_complete_copy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is this the folder of an archive"):
        select({})


def test_a_damaged_manifest_of_the_chain_is_told(archive: Archive) -> None:
    (archive.copy(p64(20)) / NAME).write_bytes(b"{}")
    with pytest.raises(ArchiveDamaged, match="manifest.json is damaged"):
        restored(archive, 30)
    assert restored(archive, 10) == ([10], 10)


def test_the_pack_of_the_newest_copy_counts(tmp_path: Path) -> None:
    """Specification 28.16."""
    archive = Archive(tmp_path, (None, 5, 15))
    assert select(archive.complete()).pack == p64(15)


# -- verification ----------------------------------------------------------------------------------


def test_an_intact_archive_has_no_problem(archive: Archive) -> None:
    """Specification 28.18."""
    assert [archive.damage(number) for number in range(3)] == [[], [], []]


def test_all_problems_are_told(archive: Archive) -> None:
    """Specification 28.19."""
    new, old = content_of(b"new").checksum, content_of(b"old").checksum
    archive.content(p64(20), new).unlink()
    archive.content(p64(10), old).write_bytes(b"0ld")
    archive.partition(p64(20), 1).unlink()
    problems = archive.damage(1)
    assert [word for word in ("is missing", "partition-1") if any(word in p for p in problems)] == [
        "is missing",
        "partition-1",
    ]
    assert any("is damaged: it is not the content" in problem for problem in archive.damage(0))


def test_what_was_lost_before_is_no_problem_of_the_archive(tmp_path: Path) -> None:
    """Specification 28.20."""
    folder, source = ArchiveFolder(str(tmp_path / "archive")), Source(tmp_path / "source")
    source.contents = {4: b"gone"}
    copy = source.copy(folder, range(3, 11), lose=True)
    assert [file.lost for file in copy.files] == [1, 0]
    for file in copy.files:
        assert list(verify_partition(folder, [copy], file, lambda size: None)) == []


def test_a_manifest_is_what_it_was_when_it_is_read_back(archive: Archive) -> None:
    for copy in archive.copies:
        found = manifests.decode("path", manifests.encode(copy))
        assert isinstance(found, Manifest) and found == copy
