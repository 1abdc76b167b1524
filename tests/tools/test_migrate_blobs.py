"""neomigrate between FileStorages with blobs."""

from __future__ import annotations

import os
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ZEO
from ZODB import DB
from ZODB.blob import BlobStorage
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64

from neo.migrate import main
from tests.tools import blobs
from tests.tools.blobs import BIG, CONTENTS, TRANSACTIONS, Source

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return blobs.make(tmp_path)


@pytest.fixture
def copy(tmp_path: Path) -> Source:
    return Source(tmp_path / "copy.fs", tmp_path / "copy-blobs")


def migrate(source: Source, copy: Source, *more: str) -> int:
    folders = ["--blobs", str(source.folder), "--blobs-to", str(copy.folder)]
    return main([str(source.path), str(copy.path), *folders, *more])


def contents(source: Source) -> dict[tuple[bytes, bytes], bytes | None]:
    with source.open() as storage:
        return blobs.contents(storage)


def opened(connection: Any, name: str) -> bytes:
    """Return the content of a blob as an application reads it."""
    with closing(connection.root()[name].open()) as file:
        return bytes(file.read())


def test_every_revision_has_its_content(source: Source, copy: Source, capsys: Capture) -> None:
    before = contents(source)
    assert len(before) == CONTENTS
    assert set(before.values()) >= {b"", b"one", b"two", BIG}
    assert migrate(source, copy, "--verify") == 0
    assert contents(copy) == before
    assert contents(source) == before, "files of the source were taken away"
    size = sum(len(content or b"") for content in before.values())
    out = capsys.readouterr().out
    assert f"; {CONTENTS} blobs, {size:,} bytes." in out
    assert f"Verified {TRANSACTIONS + 1} transactions and the contents of {CONTENTS} blobs" in out


def test_copy_shares_no_file_with_the_source(source: Source, copy: Source) -> None:
    """Damage to a file of the source must not reach a copy, which may be a backup."""
    assert migrate(source, copy) == 0
    assert {path.stat().st_nlink for path in blobs.files(copy.folder)} == {1}
    assert not list((copy.folder / "tmp").iterdir())


def test_application_goes_on_with_the_copy(source: Source, copy: Source) -> None:
    assert migrate(source, copy) == 0
    with copy.open() as storage, closing(DB(storage)) as db:
        blobs.change(db, "first", first=b"three")
        blobs.undo(db)
        with db.transaction() as connection:
            assert opened(connection, "first") == b"two"
            assert opened(connection, "big") == BIG
            assert opened(connection, "short") == b"short lived"


def test_old_layout_is_read_without_a_warning(
    tmp_path: Path, copy: Source, capsys: Capture
) -> None:
    source = blobs.make(tmp_path, "lawn")
    assert migrate(source, copy, "--verify") == 0
    assert (copy.folder / ".layout").read_text() == "bushy"
    # Read once more, now with its own class of ZODB.
    words = [f"file://{source.path}?blobstorage_dir={source.folder}", str(copy.path)]
    assert main([*words, "--blobs-to", str(copy.folder), "--verify", "--dry-run"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_packed_source_is_copied(source: Source, copy: Source) -> None:
    with source.open() as storage, closing(DB(storage)) as db:
        db.pack()
    assert migrate(source, copy, "--verify") == 0
    assert contents(copy) == contents(source)
    assert len(contents(copy)) < CONTENTS


@pytest.mark.parametrize("wrapped", [False, True])
def test_sections_bring_their_folders(
    source: Source, copy: Source, tmp_path: Path, wrapped: bool
) -> None:
    config = tmp_path / "storages.conf"
    config.write_text(
        f"<blobstorage old>\n blob-dir {source.folder}\n <filestorage>\n  path {source.path}\n"
        f" </filestorage>\n</blobstorage>\n"
        f"<blobstorage new>\n blob-dir {copy.folder}\n <filestorage>\n  path {copy.path}\n"
        f" </filestorage>\n</blobstorage>\n"
        if wrapped
        else f"<filestorage old>\n path {source.path}\n blob-dir {source.folder}\n</filestorage>\n"
        f"<zodb new>\n <filestorage>\n  path {copy.path}\n  blob-dir {copy.folder}\n </filestorage>\n"
        "</zodb>\n"
    )
    assert main(["old", "new", "--config", str(config), "--verify"]) == 0
    assert contents(copy) == contents(source)


def test_uris_bring_their_folders(source: Source, copy: Source) -> None:
    uris = [f"file://{one.path}?blobstorage_dir={one.folder}" for one in (source, copy)]
    assert main([*uris, "--verify"]) == 0
    assert contents(copy) == contents(source)


def test_zeo_is_copied_from(source: Source, copy: Source, tmp_path: Path, capsys: Capture) -> None:
    (host, port), stop = ZEO.server(str(source.path), blob_dir=str(source.folder))
    try:
        uri = f"zeo://{host}:{port}"
        cached = f"{uri}?blob_dir={tmp_path}/cache"
        assert main([cached, str(copy.path), "--blobs-to", str(copy.folder), "--verify"]) == 0
        capsys.readouterr()
        assert main([uri, str(tmp_path / "other.fs")]) == 1
        assert "was opened without a folder of blobs" in capsys.readouterr().err
        assert main([str(copy.path), uri, "--blobs", str(copy.folder), "--verify"]) == 1
        assert "was opened without a folder of blobs" in capsys.readouterr().err
    finally:
        stop()
    assert contents(copy) == contents(source)


def test_destination_that_takes_no_blobs_is_refused(
    source: Source, tmp_path: Path, capsys: Capture
) -> None:
    """ZEO stores blobs, but not with the tids of another database."""
    (host, port), stop = ZEO.server(str(tmp_path / "served.fs"), blob_dir=str(tmp_path / "served"))
    try:
        uri = f"zeo://{host}:{port}?blob_dir={tmp_path}/cache"
        assert main([str(source.path), uri, "--blobs", str(source.folder)]) == 1
    finally:
        stop()
    assert "takes no blobs" in capsys.readouterr().err


@pytest.mark.parametrize("dry", [False, True])
def test_folder_that_was_not_named_is_asked_for(
    source: Source, copy: Source, capsys: Capture, dry: bool
) -> None:
    more = ["--dry-run"] if dry else []
    words = [str(source.path), str(copy.path), *more]
    assert main([*words, "--blobs-to", str(copy.folder)]) == 1
    err = capsys.readouterr().err
    assert f"storage {str(source.path)!r} was opened without a folder of blobs" in err
    assert "--blobs DIR" in err and "--no-blobs" in err
    copy.path.unlink(missing_ok=True)
    assert main([*words, "--blobs", str(source.folder)]) == 1
    err = capsys.readouterr().err
    assert f"storage {str(copy.path)!r} takes no blobs" in err
    assert "--blobs-to DIR" in err and "--no-blobs" in err
    assert copy.path.exists() is not dry
    # What is before the first blob was copied, and the copy goes on when the folders are named.
    assert migrate(source, copy, "--verify") == 0


def test_records_alone_are_copied_by_order_and_loudly(
    source: Source, copy: Source, capsys: Capture
) -> None:
    assert main([str(source.path), str(copy.path), "--no-blobs", "--verify"]) == 1
    out, err = capsys.readouterr()
    assert "the contents of blobs are NOT copied" in err
    assert f"the contents of {CONTENTS} blobs were left out, the copy is not complete" in err
    assert f"and {CONTENTS - 10} more" in err
    assert "are equal, except contents of blobs." in out
    assert set(contents(copy).values()) == {None}
    assert migrate(source, copy, "--verify", "--dry-run") == 1
    assert " without content\n" in capsys.readouterr().err


def test_missing_file_is_named_and_salvaged_by_order(
    source: Source, copy: Source, capsys: Capture
) -> None:
    lost = blobs.files(source.folder)[4]
    before = contents(source)
    lost.unlink()
    for more in ([], ["--dry-run"]):
        assert migrate(source, copy, *more) == 1
        err = capsys.readouterr().err
        assert f"of transaction {lost.stem} is a blob, and storage" in err
        assert "has no content of it" in err
    assert migrate(source, copy, "--salvage", "--verify") == 1
    out, err = capsys.readouterr()
    assert "the contents of 1 blob were missing in the source, or could not be read" in err
    assert f"of transaction {lost.stem}\n" in err
    assert f"; {CONTENTS - 1 - 4} blobs, " in out, "four were there from the first run"
    copied = contents(copy)
    assert [key for key in before if copied[key] != before[key]] == [
        key for key in before if lost.stem == f"0x{key[1].hex()}"
    ][:1]
    assert migrate(source, copy, "--verify", "--dry-run") == 1
    assert "is a blob without content in both" in capsys.readouterr().err
    assert migrate(source, copy, "--verify", "--dry-run", "--salvage") == 0


def test_dry_run_counts_and_creates_nothing(source: Source, copy: Source, capsys: Capture) -> None:
    assert migrate(source, copy, "--dry-run") == 0
    assert f"; {CONTENTS} blobs, " in capsys.readouterr().out
    assert not copy.path.exists()
    assert not copy.folder.exists()


def test_dry_run_believes_that_the_folder_will_be_made(source: Source, copy: Source) -> None:
    FileStorage(str(copy.path)).close()
    assert migrate(source, copy, "--dry-run") == 0
    assert not copy.folder.exists()


@pytest.mark.parametrize("change", ["changed", "cut", "removed"])
def test_verify_finds_another_content(
    source: Source, copy: Source, capsys: Capture, change: str
) -> None:
    assert migrate(source, copy) == 0
    victim = max(blobs.files(copy.folder), key=lambda path: path.stat().st_size)
    os.chmod(victim, 0o600)
    if change == "removed":
        victim.unlink()
    else:
        victim.write_bytes(BIG[:-1] + (b"x" if change == "changed" else b""))
    assert migrate(source, copy, "--verify", "--dry-run") == 1
    err = capsys.readouterr().err
    assert f"different: transaction {victim.stem}: object 0x" in err
    assert f"and a content of {len(BIG)} bytes with BLAKE3" in err


def test_verify_of_blobs_needs_both_folders(source: Source, copy: Source, capsys: Capture) -> None:
    assert migrate(source, copy) == 0
    words = [str(source.path), str(copy.path), "--verify", "--dry-run"]
    for one in (["--blobs", str(source.folder)], ["--blobs-to", str(copy.folder)]):
        assert main([*words, *one]) == 1
        assert "was opened without a folder of blobs" in capsys.readouterr().err
    assert main([*words, "--no-blobs"]) == 0


def test_interrupted_copy_goes_on(
    source: Source, copy: Source, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interruption hits the middle of a transaction with several blobs."""
    original = FileStorage.restoreBlob
    calls = 0

    def interrupted(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == CONTENTS - 3:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(FileStorage, "restoreBlob", interrupted)
    assert migrate(source, copy) == 130
    monkeypatch.undo()
    kept = contents(copy)
    assert len(kept) == CONTENTS - 8
    assert not list((copy.folder / "tmp").iterdir())
    assert migrate(source, copy, "--verify") == 0
    assert "Going on at transaction 0x" in capsys.readouterr().out
    assert contents(copy) == contents(source)
    assert len(blobs.files(copy.folder)) == CONTENTS


def test_file_that_a_killed_copy_left_is_removed(source: Source, copy: Source) -> None:
    assert migrate(source, copy) == 0
    (copy.folder / "tmp" / "neomigrate-0123.tmp").write_bytes(b"left")
    (copy.folder / "tmp" / "other").write_bytes(b"of another program")
    assert migrate(source, copy) == 0
    assert [path.name for path in (copy.folder / "tmp").iterdir()] == ["other"]


def test_full_disk_ends_the_copy_between_transactions(
    source: Source, copy: Source, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("neo.migrate.blobs._write", full)
    assert migrate(source, copy) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert contents(copy) == {}
    monkeypatch.undo()
    assert migrate(source, copy, "--verify") == 0


def test_memory_is_bounded(source: Source, copy: Source) -> None:
    """A content is never in memory as a whole, and a transaction with many blobs neither."""
    for path in blobs.files(source.folder)[-8:]:
        os.chmod(path, 0o600)
        os.truncate(path, 16 << 20)
    tracemalloc.start()
    try:
        assert migrate(source, copy, "--verify") == 0
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_folders_of_other_databases_are_refused(
    source: Source, copy: Source, capsys: Capture
) -> None:
    words = [str(source.path), str(copy.path)]
    for folders, text in (
        (["--blobs", "{source}", "--blobs-to", "{source}"], "are the same folder"),
        (["--blobs", "{source}-none"], "there is no folder of blobs"),
        (["--blobs-to", "{source}"], "it belongs to another database"),
        (["--blobs-to", "{path}"], "is no folder"),
    ):
        given = [word.format(source=source.folder, path=source.path) for word in folders]
        assert main([*words, *given]) == 1
        assert text in capsys.readouterr().err
    uri = f"file://{source.path}"
    assert main([uri, str(copy.path), "--blobs", str(source.folder)]) == 1
    assert "belongs to a FileStorage given by its path" in capsys.readouterr().err
    assert main([str(source.path), f"file://{copy.path}", "--blobs-to", str(copy.folder)]) == 1
    assert "belongs to a FileStorage given by its path" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        migrate(source, copy, "--no-blobs")
    assert "leave out --blobs" in capsys.readouterr().err
    (source.folder / ".layout").write_text("spiral")
    assert migrate(source, copy) == 1
    assert "the layout 'spiral', which is unknown here" in capsys.readouterr().err


def test_damage_is_skipped_together_with_its_blobs(source: Source, copy: Source) -> None:
    """The wrapper of blobs does not hide the file from --salvage."""
    before = contents(source)
    data = bytearray(source.path.read_bytes())
    lost = next(key for key, content in before.items() if content == BIG)
    place = data.find(lost[1] + p64(0)[:1])
    data[place : place + 4] = b"\xff" * 4
    source.path.write_bytes(data)
    Path(f"{source.path}.index").unlink()
    uri = f"file://{source.path}?blobstorage_dir={source.folder}"
    words = [uri, str(copy.path), "--blobs-to", str(copy.folder)]
    assert main(words) == 1
    assert main([*words, "--salvage"]) == 1
    after = contents(copy)
    assert lost not in after
    # One of the undos refers to the damage, too.
    assert len(after) == CONTENTS - 2
    assert after.items() <= before.items()


def test_blobstorage_is_told_from_its_file(source: Source) -> None:
    """The name under which ZODB's wrapper keeps its storage, which neomigrate relies upon."""
    with closing(BlobStorage(str(source.folder), FileStorage(str(source.path)))) as wrapper:
        assert isinstance(wrapper._BlobStorage__storage, FileStorage)
