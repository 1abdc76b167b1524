"""Disks that are full or read-only: nothing is lost, and the cluster goes on when they are repaired."""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path

import pytest

from tests.faults.load import Load, check
from tests.faults.script import passes
from tests.faults.small_disk import SCENARIOS
from tests.faults.writer import prepare
from tests.support.cluster import Cluster
from tests.support.mounts import OWN_MOUNTS

SECONDS = 300


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_on_a_small_disk(scenario: str) -> None:
    # Not below a long temporary path, because the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="neo-disk-", dir="/tmp") as folder:
        command = [*OWN_MOUNTS, sys.executable, "-m", "tests.faults.small_disk", folder, scenario]
        passes(command, SECONDS)


def test_a_disk_that_fails_under_a_writing_load(tmp_path: Path) -> None:
    """For a while, every write of the storage node beyond some position of a file fails."""
    with Cluster(storages=2, partitions=4) as cluster:
        prepare(cluster.storage(), 2)
        load = Load(cluster, tmp_path)
        processes = cluster.pids()
        load.start()
        try:
            load.wait_commits(5)
            # The log stays shorter than this for a long time; the database does not.
            limit = cluster.simple.log("storage1").stat().st_size + (32 << 10)
            before = resource.prlimit(processes["storage1"], resource.RLIMIT_FSIZE)
            resource.prlimit(processes["storage1"], resource.RLIMIT_FSIZE, (limit, before[1]))
            load.logged("storage1", "the disk fails or is gone. Check the disk and the system log")
            resource.prlimit(processes["storage1"], resource.RLIMIT_FSIZE, before)
            load.wait_commits(3)
            check(cluster, load)
        finally:
            load.stop()
        assert cluster.pids() == processes
        cluster.simple.check()
