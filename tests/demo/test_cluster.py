"""The whole demonstration on a real cluster, as `make demo` runs it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from ZODB import DB
from ZODB.FileStorage import FileStorage

from examples.demo import __main__ as demo
from tests.support.cluster import simple_cluster

# The cluster starts, works and stops within a few seconds; the limit is for a busy machine.
SECONDS = 300


def run(folder: Path, *options: str | Path) -> str:
    simple_cluster(folder, name=demo.NAME, storages=demo.STORAGES, partitions=demo.PARTITIONS)
    options = "--folder", folder, *options
    command = [sys.executable, "-m", "examples.demo", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


def test_the_demonstration_ends_well_with_the_library_of_python(tmp_path: Path) -> None:
    text = run(tmp_path, "--modules", "30")
    assert "30 of 30 modules" in text
    assert "The counter says 100 and there are 100 notes: none was lost." in text
    assert "after its undo:      Reviews are open." in text
    assert "RUNNING" in text
    assert "All processes ended." in text


def test_the_demonstration_ends_well_with_a_datafs_and_its_files_serve_again(
    tmp_path: Path,
) -> None:
    data = tmp_path / "theirs.fs"
    with closing(DB(FileStorage(str(data)))) as db:
        for number in range(5):
            with db.transaction(f"number {number}") as connection:
                connection.root()[number] = "value"
    folder = tmp_path / "cluster"
    first = run(folder, "--data", data)
    assert "6 of 6 transactions" in first
    assert "The counter says 4 and there are 4 notes: none was lost." in first
    second = run(folder, "--data", data)
    assert "its transactions are there already" in second
    assert "The counter says 24 and there are 24 notes: none was lost." in second
