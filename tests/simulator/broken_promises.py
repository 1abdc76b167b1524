"""Fault: a disk loses data that was durable, while the node is down.

A machine is killed. Then a bit of the write-ahead log is flipped, or its end or all of it is lost, or
the database is replaced by an old copy, with or without the log of that time. The node must refuse to
open the database, or have all that it acknowledged. The operator, who sees the refusal, puts the right
files back.

Only the real SQLite backend has files. All damage hits acknowledged data; other data may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from neo.storage.backend.acknowledged import ROW
from tests.simulator.disk_check import Rows
from tests.simulator.world import Violation

if TYPE_CHECKING:
    from tests.simulator.cluster import Cluster
    from tests.simulator.sqlite_disk import Files, SQLiteDisk

#: Mean time for which syncs are watched before the machine is killed, and mean time until it starts.
WATCHED_SECONDS = 0.5
BOOT_SECONDS = 0.3
#: Part of the syncs after which a copy is taken that may be put back later.
COPY_CHANCE = 0.3

LOG_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24


class Promises:
    """Record what the syncs of a disk made durable; then lose some of it, once."""

    def __init__(self, disk: SQLiteDisk) -> None:
        self._disk = disk
        self._random: Random | None = None
        self._acknowledged: Files | None = None
        self._copy: Files | None = None
        self._intact: Files | None = None

    def watch(self, random: Random) -> None:
        if self._random is None and self._intact is None:
            self._random = random
            self._acknowledged = self._copy = None

    def synced(self, files: Callable[[], Files]) -> None:
        if self._random is None:
            return
        if self._acknowledged is not None and self._random.random() < COPY_CHANCE:
            self._copy = self._acknowledged
        self._acknowledged = files()

    def breaks(self, files: Files) -> bool:
        """Damage the files at the end of the process. Return whether they are changed."""
        random, self._random = self._random, None
        if random is None or self._acknowledged is None:
            return False
        if not (ways := self._ways(random, files, self._acknowledged)):
            return False
        name, damaged = random.choice(ways)
        self._disk.world.log(self._disk.name, f"loses what was durable: {name}")
        self._intact = files
        self._disk.write(damaged)
        return True

    def _ways(self, random: Random, now: Files, acknowledged: Files) -> list[tuple[str, Files]]:
        ways = []
        end = _end(acknowledged.log)
        if (
            end > LOG_HEADER_BYTES
            and now.log[:LOG_HEADER_BYTES] == acknowledged.log[:LOG_HEADER_BYTES]
        ):
            flipped = bytearray(now.log)
            flipped[random.randrange(LOG_HEADER_BYTES, end)] ^= 1 << random.randrange(8)
            ways = [
                ("a bit of the log", now._replace(log=bytes(flipped))),
                ("the end of the log", now._replace(log=now.log[: random.randrange(end)])),
                ("the log", now._replace(log=b"")),
            ]
        if (copy := self._copy) is not None:
            ways.append(("an old database", copy._replace(log=b"")))
            ways.append(("an old database and its log", copy))
        return ways

    @property
    def intact(self) -> Files | None:
        """The right files while the disk has others, else None."""
        return self._intact

    def refused(self) -> None:
        """Put the right files back. Raise Violation if the node refused the right files."""
        if self._intact is None:
            raise Violation(f"{self._disk.name}: a database that lost nothing is refused")
        self._disk.write(self._intact)
        self._intact = None

    def opened(self, rows: Rows) -> None:
        """Raise Violation if the database was opened and lacks what was acknowledged."""
        intact, self._intact = self._intact, None
        if intact is None or self._acknowledged is None:
            return
        right = [_comparable(self._disk.rows_of(files)) for files in (intact, self._acknowledged)]
        if _comparable(rows) not in right:
            raise Violation(
                f"{self._disk.name}: a database without what was acknowledged is served"
            )

    def restore(self) -> None:
        """Undo the damage before any process has seen it."""
        if self._intact is not None:
            self.refused()


def _end(log: bytes) -> int:
    """Return the position after the last complete commit of the log."""
    end = last = LOG_HEADER_BYTES
    frame_bytes = FRAME_HEADER_BYTES + int.from_bytes(log[8:12], "big")
    while len(log) >= end + frame_bytes and log[end + 8 : end + 16] == log[16:24]:
        committed = any(log[end + 4 : end + 8])
        end += frame_bytes
        if committed:
            last = end
    return last


def _comparable(rows: Rows) -> Rows:
    return {**rows, "config": [row for row in rows["config"] if row[0] != ROW]}


class BrokenPromises:
    def __init__(self, clusters: Sequence[Cluster], random: Random) -> None:
        self._clusters = clusters
        self._random = random

    def act(self) -> None:
        """Watch the disk of a node for a while, then kill the node's machine."""
        cluster = self._random.choice(self._clusters)
        mount = self._random.choice(cluster.mounts)
        disk, process = mount.disk, mount.process
        disk.break_promise(Random(self._random.random()))

        def kill() -> None:
            process.kill()
            boots = self._random.expovariate(1 / BOOT_SECONDS)
            cluster.world.call_later(boots, process.revive, f"{process.name} boots")

        seconds = self._random.expovariate(1 / WATCHED_SECONDS)
        cluster.world.call_later(seconds, kill, f"{process.name} loses power")
