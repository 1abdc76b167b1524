"""How much room a disk has, and which disk that is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_MOUNTS = Path("/proc/self/mountinfo")
_MACHINE = Path("/proc/sys/kernel/random/boot_id")


class Disk(NamedTuple):
    """``free``, ``total``: bytes. ``name``: equal for all processes that use the same file system, also
    on several machines if it is one of the network."""

    free: int
    total: int
    name: str


def disk_of(path: Path) -> Disk:
    """Return the disk that has a folder, or will have it. Raise OSError."""
    while not path.exists() and path != path.parent:
        path = path.parent
    room = os.statvfs(path)
    # What is kept for root is not ours: a disk is full when nothing is left for others.
    total = (room.f_blocks - room.f_bfree + room.f_bavail) * room.f_frsize
    return Disk(room.f_bavail * room.f_frsize, total, _name(os.stat(path).st_dev))


def known_disk(path: Path) -> Disk | None:
    """Return the same, or None if this process may not know."""
    try:
        return disk_of(path)
    except OSError:
        return None


def _name(device: int) -> str:
    numbers = f"{os.major(device)}:{os.minor(device)}"
    source = mount_source(_MOUNTS.read_text(), numbers)
    if ":" in source or source.startswith("//"):
        return source  # HOST:/PATH and //HOST/SHARE are what they are on each machine
    return f"{_MACHINE.read_text().strip()} {numbers}"


def mount_source(mounts: str, device: str) -> str:
    """Return what is mounted as a device, '' if that is not known. ``mounts``: see
    proc_pid_mountinfo(5)."""
    for line in mounts.splitlines():
        place, _, source = line.partition(" - ")
        if place.split()[2:3] == [device]:
            return source.split()[1]
    return ""
