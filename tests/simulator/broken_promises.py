"""A disk loses what it had said to be durable, while the node is down.

A machine is killed, and then a bit of the write-ahead log is flipped, its end or all of it is gone, or
the database is an old copy of itself, with or without the log of that time. The node must refuse to open
it, or have all that it acknowledged. The operator, who sees the refusal, puts the right files back.

Only the real SQLite backend has files. All damage is in what was acknowledged: what was not may be lost.
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

#: How long syncs are watched before the machine is killed, and how long it needs to start, on average.
WATCHED_SECONDS = 0.5
BOOT_SECONDS = 0.3
#: How many syncs are followed by a copy that may be put back later.
COPY_CHANCE = 0.3

LOG_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24


class Promises:
    """What the syncs of a disk promised since it is watched; then it breaks its word, once."""

    def __init__(self, disk: SQLiteDisk) -> None:
        self._disk = disk
        self._random: Random | None = None
        self._acknowledged: Files | None = None
        self._copy: Files | None = None
        #: The right files, while the disk has others.
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
        """At the end of the process: whether other files than these are found by the next one."""
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

    def refused(self) -> None:
        """Put the right files back. Raises Violation if they were there."""
        if self._intact is None:
            raise Violation(f"{self._disk.name}: a database that lost nothing is refused")
        self._disk.write(self._intact)
        self._intact = None

    def opened(self, rows: Rows) -> None:
        """Raises Violation if it lacks what was acknowledged."""
        intact, self._intact = self._intact, None
        if intact is None or self._acknowledged is None:
            return
        right = [_comparable(self._disk.rows_of(files)) for files in (intact, self._acknowledged)]
        if _comparable(rows) not in right:
            raise Violation(
                f"{self._disk.name}: a database without what was acknowledged is served"
            )

    def restore(self) -> None:
        """Nobody has seen the damage: there is none."""
        if self._intact is not None:
            self.refused()


def _end(log: bytes) -> int:
    """Of the last commit of a log that is whole."""
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
        """Watch the disk of a node for a while, then kill its machine."""
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
