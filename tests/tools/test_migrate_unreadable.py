"""neomigrate of a source whose files the disk, or the system, does not give."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ZODB.FileStorage import FileStorage

from neo.migrate import main
from tests.support.privileges import bound_by_permissions
from tests.tools import blobs, damage
from tests.tools.blobs import Source
from tests.tools.damage import Row, Whole

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return blobs.make(tmp_path)


@pytest.fixture
def copy(tmp_path: Path) -> Source:
    return Source(tmp_path / "copy.fs", tmp_path / "copy-blobs")


@pytest.fixture(autouse=True)
def bound() -> Iterator[None]:
    """Root may read everything."""
    with bound_by_permissions():
        yield


def migrate(source: Source, copy: Source, *more: str) -> int:
    folders = ["--blobs", str(source.folder), "--blobs-to", str(copy.folder)]
    return main([str(source.path), str(copy.path), *folders, "--quiet", *more])


# -- files of blobs ------------------------------------------------------------------------------------


def forbid(path: Path, patch: Patch) -> None:
    path.chmod(0)


def forbid_folder(path: Path, patch: Patch) -> None:
    path.parent.chmod(0)


def be_folder(path: Path, patch: Patch) -> None:
    path.unlink()
    path.mkdir()


def be_pipe(path: Path, patch: Patch) -> None:
    """To open it would wait for ever."""
    path.unlink()
    os.mkfifo(path)


def point_to_itself(path: Path, patch: Patch) -> None:
    path.unlink()
    path.symlink_to(path)


def fail(path: Path, patch: Patch) -> None:
    """Let the disk fail in the middle of the file."""
    path.chmod(0o600)
    path.write_bytes(bytes(3 << 20))
    patch.setattr("neo.migrate.blobs.open", failing_open(path, 2 << 20), raising=False)


Break = Callable[[Path, Patch], None]
WHYS: dict[Break, str] = {
    forbid: "Permission denied",
    forbid_folder: "Permission denied",
    be_folder: "is no file",
    be_pipe: "is no file",
    point_to_itself: "Too many levels of symbolic links",
    fail: "Input/output error",
}


def failing_open(path: Path, start: int, end: int = 1 << 62) -> Callable[..., Any]:
    """Return an ``open`` of files that fail to read bytes of one of them."""

    class Failing(io.FileIO):
        def _check(self, size: int) -> None:
            at = self.tell()
            if self.name == str(path) and at < end and at + size > start:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        def readinto(self, buffer: Any) -> int | None:
            self._check(len(buffer))
            return super().readinto(buffer)

        def read(self, size: int | None = -1) -> bytes:
            assert size is not None and size >= 0
            self._check(size)
            return super().read(size)

    def opening(name: Any, mode: str, buffering: int = -1) -> Any:
        raw = Failing(name, mode)
        # Only what is asked for is read: a buffer would reach into the bad bytes behind it.
        return raw if buffering == 0 or "r" not in mode else io.BufferedReader(raw, 1)

    return opening


@pytest.mark.parametrize("broken", WHYS)
def test_a_content_that_cannot_be_read_is_told_with_its_file_and_left_out_by_order(
    source: Source, copy: Source, capsys: Capture, broken: Break
) -> None:
    victim = blobs.files(source.folder)[4]
    if broken is forbid_folder:  # which has earlier revisions, too
        victim = min(victim.parent.iterdir())
    with source.open() as storage:
        before = blobs.contents(storage)
        lost = [key for key in before if storage.loadBlob(*key) == str(victim)]
    mode = victim.parent.stat().st_mode
    with pytest.MonkeyPatch.context() as patch:
        broken(victim, patch)
        name = f"object 0x{lost[0][0].hex()} of transaction {victim.stem}"
        for more in (["--dry-run"], []):
            assert migrate(source, copy, *more) == 1
            err = capsys.readouterr().err
            assert f"{name} is a blob" in err and WHYS[broken] in err and f"'{victim}'" in err
            assert "restore the file from a backup, then the same command goes on" in err
        with closing(FileStorage(str(copy.path))) as kept:
            assert kept.lastTransaction() < lost[0][1]
        for more in (["--dry-run", "--salvage"], ["--salvage", "--verify"]):
            assert migrate(source, copy, *more) == 1
            err = capsys.readouterr().err
            said = r"blobs? were missing in the source, or could not be read, the copy is not"
            assert re.search(said, err)
            assert f"  {name}: '{victim}'" in err and WHYS[broken] in err
            assert "different" not in err
    victim.parent.chmod(mode)
    assert not list((copy.folder / "tmp").iterdir())
    with copy.open() as storage:
        copied = blobs.contents(storage)
    gone = {key for key in before if copied[key] is None}
    assert set(lost) <= gone
    assert all(copied[key] == before[key] for key in before if key not in gone)
    # Other files of the folder that may not be entered are lost with it.
    assert gone == set(lost) or broken is forbid_folder


def test_a_copy_goes_on_when_the_file_is_back(source: Source, copy: Source) -> None:
    victim = blobs.files(source.folder)[4]
    victim.chmod(0)
    assert migrate(source, copy) == 1
    victim.chmod(0o400)
    assert migrate(source, copy, "--verify") == 0
    with source.open() as storage, copy.open() as copied:
        assert blobs.contents(copied) == blobs.contents(storage)


def test_want_of_descriptors_loses_no_content(source: Source, copy: Source, capsys: Capture) -> None:
    """A later attempt may read the file."""

    def scarce(name: Any, mode: str, buffering: int = -1) -> Any:
        if "r" in mode:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open(name, mode, buffering)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neo.migrate.blobs.open", scarce, raising=False)
        assert migrate(source, copy, "--salvage") == 1
    assert "Too many open files" in capsys.readouterr().err
    assert migrate(source, copy, "--verify") == 0


def test_an_unreadable_content_of_the_copy_is_a_difference(
    source: Source, copy: Source, capsys: Capture
) -> None:
    assert migrate(source, copy) == 0
    victim = blobs.files(copy.folder)[4]
    victim.chmod(0)
    for more in ([], ["--salvage"]):
        assert migrate(source, copy, "--verify", "--dry-run", *more) == 1
        err = capsys.readouterr().err
        assert f"different: transaction {victim.stem}" in err
        assert f"without content ('{victim}': Permission denied)" in err


def test_a_folder_that_may_not_be_read_is_named(
    source: Source, copy: Source, capsys: Capture
) -> None:
    (source.folder / ".layout").chmod(0)
    for words in ([], ["--salvage"]):
        assert migrate(source, copy, *words) == 1
        err = capsys.readouterr().err
        assert f"Permission denied ('{source.folder}/.layout')" in err
    assert not copy.path.exists()


# -- the data file -------------------------------------------------------------------------------------


class Data:
    """A FileStorage whose disk fails at the data of one record."""

    def __init__(self, folder: Path, patch: Patch) -> None:
        self.path = folder / "Data.fs"
        damage.make(self.path)
        self.whole = damage.layout(self.path)
        self.transaction, self.row = max(
            ((each, row) for each in self.whole for row in each.rows),
            key=lambda found: len(found[1].data or b""),
        )
        self._patch = patch

    def fail(self, start: int, end: int) -> None:
        patch, plain = self._patch, os.pread

        def pread(fd: int, size: int, position: int) -> bytes:
            if position < end and position + size > start:
                if position >= start:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                size = start - position  # as the system does
            return plain(fd, size, position)

        patch.setattr("neo.migrate.records.os.pread", pread)
        patch.setattr("neo.migrate.datafs.open", failing_open(self.path, start, end), raising=False)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: Patch) -> Data:
    return Data(tmp_path, monkeypatch)


def copied(path: Path) -> dict[bytes, Any]:
    with closing(FileStorage(str(path), read_only=True)) as storage:
        return damage.contents(storage)


def test_a_record_that_cannot_be_read_ends_the_copy_before_its_transaction(
    data: Data, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    whole, row, path = data.transaction, data.row, tmp_path / "copy.fs"
    data.fail(row.position + 4096, row.position + 8192)
    for more in (["--dry-run"], []):
        assert main([str(data.path), str(path), "--quiet", *more]) == 1
        err = capsys.readouterr().err
        assert f"transaction 0x{whole.tid.hex()} cannot be read: object 0x{row.oid.hex()}" in err
        assert f"in '{data.path}': Input/output error" in err and "--salvage" in err
    assert max(copied(path)) == max(each.tid for each in data.whole if each.tid < whole.tid)
    monkeypatch.undo()  # the disk recovers
    assert main([str(data.path), str(path), "--quiet", "--verify"]) == 0


def test_a_record_that_cannot_be_read_is_left_out_by_order(
    data: Data, tmp_path: Path, capsys: Capture
) -> None:
    whole, row, path = data.transaction, data.row, tmp_path / "copy.fs"
    data.fail(row.position + 4096, row.position + 8192)
    for more in (["--dry-run"], ["--verify"]):
        assert main([str(data.path), str(path), "--quiet", "--salvage", *more]) == 1
        err = capsys.readouterr().err
        name = f"object 0x{row.oid.hex()} of transaction 0x{whole.tid.hex()}"
        assert f"the data of {name}: bytes at {row.position + 4096} cannot be read" in err
        assert f"bytes {whole.start} to {whole.end}, between transaction 0x" in err
        assert "different" not in err
    lost = damage.lost_data(data.whole, {whole.tid})
    assert copied(path) == damage.originals(each for each in data.whole if each.tid not in lost)


def at_header(whole: Whole, row: Row) -> tuple[int, int]:
    return whole.start, whole.start + 8


def at_the_beginning(whole: Whole, row: Row) -> tuple[int, int]:
    return 0, 512


def at_the_length(whole: Whole, row: Row) -> tuple[int, int]:
    return whole.end - 8, whole.end


def at_the_end(whole: Whole, row: Row) -> tuple[int, int]:
    return row.position, 1 << 40


@pytest.mark.parametrize("place", [at_header, at_the_beginning, at_the_length, at_the_end])
def test_unreadable_headers_are_damage(
    data: Data,
    tmp_path: Path,
    capsys: Capture,
    place: Callable[[Whole, Row], tuple[int, int]],
) -> None:
    start, end = place(data.transaction, data.row)
    data.fail(start, end)
    path = tmp_path / "copy.fs"
    assert main([str(data.path), str(path), "--quiet", "--dry-run"]) == 1
    assert "is damaged; nothing is copied" in capsys.readouterr().err
    assert main([str(data.path), str(path), "--quiet", "--salvage"]) == 1
    assert "cannot be read: Input/output error" in capsys.readouterr().err
    hit = {each.tid for each in data.whole if each.start < end and start < each.end}
    # After bad blocks the search begins at the next block.
    close = {each.tid for each in data.whole if end <= each.start < end + 4096}
    found = copied(path)
    for each in data.whole:
        if each.tid not in damage.lost_data(data.whole, hit | close):
            assert found[each.tid] == damage.originals([each])[each.tid]
    assert not hit & found.keys()


def test_a_data_file_that_may_not_be_read_is_named(
    data: Data, tmp_path: Path, capsys: Capture
) -> None:
    data.path.chmod(0)
    config = tmp_path / "storages.conf"
    config.write_text(f"<filestorage old>\n path {data.path}\n</filestorage>\n")
    for words in ([str(data.path)], ["old", "--config", str(config)], [f"file://{data.path}"]):
        assert main([words[0], str(tmp_path / "copy.fs"), *words[1:], "--salvage"]) == 1
        assert f"Permission denied ('{data.path}')" in capsys.readouterr().err


def test_an_index_that_may_not_be_read_is_told(data: Data, tmp_path: Path, capsys: Capture) -> None:
    Path(f"{data.path}.index").chmod(0)
    assert main([str(data.path), str(tmp_path / "copy.fs"), "--quiet"]) == 1
    assert f"{data.path}.index cannot be read (PermissionError" in capsys.readouterr().err
    assert copied(tmp_path / "copy.fs") == damage.originals(data.whole)
