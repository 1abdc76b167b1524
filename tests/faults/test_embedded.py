"""Embedded databases and other processes: one that comes second, a cluster, a fork, ``kill -9``; and a
disk that is full.

``NEO_EMBEDDED_ROUNDS`` and ``NEO_EMBEDDED_SEED`` choose a longer run of kills, or repeat one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import ZODB
import zodburi

import neo.client
from neo.client.errors import RefusedError
from neo.simple import Cluster
from tests.faults.embedded_writer import WRITERS, values
from tests.faults.script import passes
from tests.support.mounts import OWN_MOUNTS
from tests.support.patience import PATIENCE_SECONDS
from tests.support.seeds import seed

SECONDS = 100
#: Processes that are killed.
ROUNDS = int(os.environ.get("NEO_EMBEDDED_ROUNDS") or 4)
#: Most commits that a process acknowledges before it is killed.
COMMITS_MAX = 60
#: Part of the processes that are killed at any moment of their start, which takes about so long.
EARLY = 0.4
#: Processes after which the counters are looked at.
CHECKED = 4
START_SECONDS = 2.0


@contextmanager
def writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that commits until it is killed."""
    command = [sys.executable, "-m", "tests.faults.embedded_writer", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


class Acknowledged:
    """The acknowledged values of each writer, by what processes said until they were killed."""

    def __init__(self) -> None:
        self.values = [0] * WRITERS

    def hear(self, process: subprocess.Popen[str], count: int) -> None:
        """Wait for so many acknowledgements."""
        assert process.stdout is not None
        for _ in range(count):
            line = process.stdout.readline()
            assert line, f"the writers ended, exit code {process.wait(PATIENCE_SECONDS)}"
            self._note(line)

    def hear_rest(self, process: subprocess.Popen[str]) -> None:
        """Take what a process said before it ended."""
        assert process.stdout is not None
        for line in process.stdout:
            self._note(line)

    def _note(self, line: str) -> None:
        writer, value = line.split()
        assert int(value) > self.values[int(writer)], "a counter went back"
        self.values[int(writer)] = int(value)

    def check(self, folder: Path, killed: int) -> None:
        """Check the counters after so many processes. The last commit of each process may be complete,
        and not acknowledged."""
        with closing(ZODB.DB(neo.client.open(folder))) as db, db.transaction() as connection:
            for writer, acknowledged in enumerate(self.values):
                (value,) = values(connection, writer)
                assert 0 <= value - acknowledged <= killed, f"writer {writer}"
                self.values[writer] = value


@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_with_the_process(tmp_path: Path) -> None:
    """Specification 14.1: it is killed at random moments, also while it opens the folder."""
    choice = random.Random(seed("EMBEDDED"))
    acknowledged = Acknowledged()
    for number in range(1, ROUNDS + 1):
        with writer(tmp_path) as process:
            if choice.random() < EARLY:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(choice.uniform(0.2, START_SECONDS))
                assert process.poll() is None, "the writers ended before they were killed"
            else:
                acknowledged.hear(process, choice.randint(1, COMMITS_MAX))
            process.kill()
            acknowledged.hear_rest(process)
        if number % CHECKED == 0:
            acknowledged.check(tmp_path, CHECKED)


def test_a_second_process_is_told_which_one_has_the_folder(tmp_path: Path) -> None:
    with writer(tmp_path) as process:
        Acknowledged().hear(process, 1)
        with pytest.raises(RefusedError) as refused:
            neo.client.open(tmp_path)
    assert f"{tmp_path} is in use by process {process.pid}: one process at a time" in str(refused.value)
    assert f"run: neosimple --folder {tmp_path}, and open the URI" in str(refused.value)
    neo.client.open(tmp_path).close()


def test_a_cluster_serves_the_folder_and_back(tmp_path: Path) -> None:
    with closing(ZODB.DB(neo.client.open(tmp_path))) as db, db.transaction() as connection:
        connection.root()["x"] = 1
    with Cluster(tmp_path) as cluster:
        factory, options = zodburi.resolve_uri(cluster.uri)
        with closing(ZODB.DB(factory(), **options)) as db, db.transaction() as connection:
            connection.root()["x"] += 1
        with pytest.raises(RefusedError, match="served by another process") as refused:
            neo.client.open(tmp_path)
        assert f"open {cluster.uri} instead" in str(refused.value)
    with closing(ZODB.DB(neo.client.open(tmp_path))) as db, db.transaction() as connection:
        assert connection.root()["x"] == 2


def test_the_child_of_a_fork_leaves_the_database_alone(tmp_path: Path) -> None:
    passes([sys.executable, "-m", "tests.faults.embedded_fork", str(tmp_path)], SECONDS)


def test_on_a_disk_that_is_full_for_a_while() -> None:
    with tempfile.TemporaryDirectory(prefix="neo-disk-", dir="/tmp") as folder:
        passes([*OWN_MOUNTS, sys.executable, "-m", "tests.faults.embedded_disk", folder], SECONDS)
