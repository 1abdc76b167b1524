"""Which disk an archive is on, and what is free there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from neo.archive.room import disk_of, known_disk, mount_source

MOUNTS = """\
22 27 0:21 / /proc rw,nosuid shared:14 - proc proc rw
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
90 27 0:52 / /mnt/backup rw,relatime shared:44 - nfs4 store:/export/neo rw,vers=4.2
"""


@pytest.mark.parametrize(
    ("device", "source"), [("254:1", "/dev/vda1"), ("0:52", "store:/export/neo"), ("9:9", "")]
)
def test_a_disk_of_the_network_is_known_by_its_source(device: str, source: str) -> None:
    assert mount_source(MOUNTS, device) == source


def test_a_folder_that_is_missing_will_be_on_the_disk_of_those_above_it(tmp_path: Path) -> None:
    disk, room = disk_of(tmp_path / "missing" / "archive"), os.statvfs(tmp_path)
    assert disk.name == disk_of(tmp_path).name
    assert 0 < disk.free <= disk.total <= room.f_blocks * room.f_frsize
    assert known_disk(tmp_path / "missing") is not None
