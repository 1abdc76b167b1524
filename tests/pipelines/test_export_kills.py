"""All tables are as of one transaction at each read, also after a kill at any step."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from ZODB import DB
from ZODB.FileStorage import FileStorage

from neo.export import folder, plan, spill
from neo.spark.tables import TABLES
from tests.pipelines.exporting import Capture, change, export, exported, killed_at, refused
from tests.pipelines.sample import Document
from tests.support.patience import wait_until
from tests.support.whole import few

ROOT = Path(__file__).parents[2]

# -- what readers see ----------------------------------------------------------------------------


def test_a_reader_of_a_snapshot_keeps_it_while_the_next_one_is_made(
    copied: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(copied, out)
    kept = out / os.readlink(out / "current")
    before = {table: exported(kept, table) for table in TABLES}
    names = [path.name for path in (out / "history").iterdir()]
    with closing(FileStorage(str(copied))) as storage:
        change(storage, 0)
    export(copied, out)
    assert {table: exported(kept, table) for table in TABLES} == before
    # A reader that listed the files earlier and opens them now finds none of another snapshot.
    assert not any((out / "history" / name).exists() for name in names)
    with closing(FileStorage(str(copied))) as storage:
        change(storage, 1)
    export(copied, out)
    assert not kept.exists()
    assert len(list((out / "snapshots").iterdir())) == 2


def test_two_exports_at_once_are_refused(copied: Path, tmp_path: Path, capsys: Capture) -> None:
    with folder.Folder(tmp_path / "out").locked():
        assert "another neoexport writes" in refused(capsys, copied, tmp_path / "out")


def test_a_folder_of_something_else_is_refused(
    copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    export(copied, tmp_path / "out")
    (tmp_path / "out/current/manifest.json").write_text("{}")
    assert "is no manifest of an export" in refused(capsys, copied, tmp_path / "out")


# -- kills ---------------------------------------------------------------------------------------


def test_an_export_killed_at_any_moment_goes_on_and_readers_see_all_or_nothing(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "RUN_BYTES", 10_000)
    monkeypatch.setattr(plan, "GROUPS", 2)
    base, whole = tmp_path / "base", tmp_path / "whole"
    export(copied, base)
    before = {table: exported(base, table) for table in TABLES}
    with closing(FileStorage(str(copied))) as storage:
        change(storage, 0)
    export(copied, whole)
    after = {table: exported(whole, table) for table in TABLES}
    (stride,) = few(5, whole=[1])
    moment = 0
    while True:
        out = tmp_path / f"out {moment}"
        shutil.copytree(base, out, symlinks=True)
        if not killed_at(moment, copied, out, monkeypatch):
            break
        assert {table: exported(out, table) for table in TABLES} in (before, after)
        export(copied, out)
        assert {table: exported(out, table) for table in TABLES} == after
        left = {path.name for path in out.iterdir()} - {".lock", "current", "snapshots"}
        assert left == set(TABLES)
        shutil.rmtree(out)
        moment += stride
    assert moment > 40


def children(pid: int) -> list[int]:
    """The processes that work for another one; it also has one that watches over its resources."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [n for n in found if b"spawn_main" in Path(f"/proc/{n}/cmdline").read_bytes()]


def test_kill_9_of_the_command_ends_its_processes_and_costs_only_what_they_were_at(
    tmp_path: Path,
) -> None:
    path, out = tmp_path / "many.fs", tmp_path / "out"
    with closing(DB(FileStorage(str(path)))) as db, db.transaction() as connection:
        for number in range(8_000):
            connection.root()[number] = Document(number)
    arguments = [sys.executable, "-m", "neo.export", str(path), "--parquet", str(out), "--quiet"]
    changes = out / "unfinished" / "changes"

    def started(files: int) -> tuple[subprocess.Popen[str], list[int]]:
        """The command and its processes, when so many files are finished."""
        process = subprocess.Popen(
            [*arguments, "--jobs", "2"], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        wait_until(
            lambda: len(list(changes.glob("0*"))) >= files, "no file was finished", poll=0.002
        )
        return process, children(process.pid)

    process, workers = started(1)
    os.kill(workers[0], signal.SIGKILL)
    assert "a process of this export ended with code -9" in process.communicate()[1]
    assert process.returncode == 1
    process, workers = started(len(list(changes.glob("0*"))) + 1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert workers and not (out / "current").exists()
    wait_until(lambda: not any(map(alive, workers)), "processes outlive the command")
    finished = {path.name: path.stat().st_ino for path in changes.glob("0*")}
    assert 0 < len(finished) < 16
    export(path, out)
    for name, inode in finished.items():
        assert (out / "changes" / name).stat().st_ino == inode
    export(path, tmp_path / "whole")
    for table in TABLES:
        assert exported(out, table) == exported(tmp_path / "whole", table)


def alive(pid: int) -> bool:
    """Zombies of other parents count as gone."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
