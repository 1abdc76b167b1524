"""The command line of the demonstration, against storages that need no cluster."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

import pytest
from ZODB import DB
from ZODB.FileStorage import FileStorage

from examples.demo import __main__ as demo
from examples.demo.opening import UnknownAddress, open_database
from examples.demo.show import Show


def test_an_unknown_address_is_one_line_that_says_what_to_install(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert demo.main(["--storage-uri", "teapot://somewhere"]) == 1
    error = capsys.readouterr().err
    assert "teapot" in error
    assert "install" in error
    assert error.count("\n") == 1


def test_a_path_is_not_an_address() -> None:
    with pytest.raises(UnknownAddress, match="a/path"):
        open_database("a/path")


def test_a_missing_datafs_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--data", "no-such.fs"])
    assert stopped.value.code == 2
    assert "no-such.fs is not a file" in capsys.readouterr().err


def test_a_damaged_datafs_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "Data.fs"
    with closing(DB(FileStorage(str(path)))):
        size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 5)
    assert demo.main(["--data", str(path)]) == 1
    out, err = capsys.readouterr()
    assert f"is damaged; nothing is copied. Lost are\n  bytes 4 to {size - 5}, between" in err
    assert "Starting a cluster" not in out


def test_an_address_is_opened_by_the_package_that_registered_for_it(tmp_path: Path) -> None:
    with closing(open_database(f"file://{tmp_path}/Data.fs")) as db:
        assert db.storage.getName() == str(tmp_path / "Data.fs")


def test_an_interruption_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupt)
    assert demo.main(["--storage-uri", "file:///unused"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_kept_folder_is_named_with_the_command_that_serves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = argparse.Namespace(folder=tmp_path / "new", keep=False)
    with demo.files(Show(), options) as folder:
        assert folder.is_dir()
    assert folder.is_dir()
    assert f"neosimple --folder {folder}" in capsys.readouterr().out.replace("\n", "")


def test_a_folder_that_nobody_named_is_removed() -> None:
    options = argparse.Namespace(folder=None, keep=False)
    with demo.files(Show(), options) as folder:
        (folder / "file").write_text("")
    assert not folder.exists()
