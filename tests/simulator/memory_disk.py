"""A simulated disk with a database in memory: fast, and without any file."""

from __future__ import annotations

from collections.abc import Callable

from neo.storage.backend.api import BackendFailure
from tests.simulator.disk_base import OnFailure, SimDisk, Sync
from tests.simulator.disk_check import Rows
from tests.simulator.disk_host import DiskHost
from tests.simulator.memory import MemoryBackend
from tests.simulator.memory_tables import NAMES, Changes, Image, apply, empty_image
from tests.simulator.world import World

#: Seconds from a write to its execution. The seed chooses one of them.
LAGS = (0.0, 0.0, 0.0005, 0.01)


class MemoryDisk(SimDisk):
    """A disk with a database in memory. ``image``: the durable rows."""

    def __init__(
        self, world: World, name: str, lag: float | None = None, dedup: bool | None = None
    ) -> None:
        super().__init__(world, name, dedup)
        self.image = empty_image()
        self._lag = world.random.choice(LAGS) if lag is None else lag
        self._owner: MemoryBackend | None = None
        self._sync: Sync | None = None
        self._commit: tuple[Changes, Callable[[], object], OnFailure] | None = None

    def make_backend(
        self, host: DiskHost, failed: OnFailure, dedup: bool | None = None
    ) -> MemoryBackend:
        dedup = self.dedup if dedup is None else dedup
        return MemoryBackend(self, host.from_thread, failed, dedup, self._lag)

    # -- for the backend --------------------------------------------------------------------------

    def take(self, backend: MemoryBackend) -> None:
        """Take the lock of the database."""
        if self._owner is not None:
            raise BackendFailure(f"{self.name}: another process uses this database")
        self._owner = backend

    def release(self, backend: MemoryBackend) -> None:
        assert self._owner is backend
        self._owner = None

    def sync(self, changes: Changes, done: Callable[[], object], failed: OnFailure) -> None:
        """Make a commit durable after the time of a sync."""
        assert self._sync is None, "one commit at a time"
        self._commit = changes, done, failed
        self._sync = self.start_sync(self._end_sync)

    def finish_sync(self) -> None:
        """Finish the sync at once, for a process that waits for it to close its database."""
        if self._sync is not None:
            self._sync.cancel()
            self._end_sync()

    def _end_sync(self) -> None:
        assert self._commit is not None
        changes, done, failed = self._commit
        self._sync = self._commit = None
        if self.failing:
            self._keep_perhaps(changes, "a sync fails")
            failed(self.failure("a sync failed"))
        else:
            apply(self.image, changes)
            done()

    def _keep_perhaps(self, changes: Changes, what: str) -> None:
        kept = self.world.chance(0.5)
        if kept:
            apply(self.image, changes)
        self.world.log(self.name, f"{what}: the last commit is {'kept' if kept else 'lost'}")

    # -- for the world ----------------------------------------------------------------------------

    def crash_database(self) -> None:
        if self._sync is not None and self._commit is not None:
            self._sync.cancel()
            self._keep_perhaps(self._commit[0], "crash")
            self._sync = self._commit = None
        if self._owner is not None:
            self._owner.abandon()
            self._owner = None

    def copy_database(self, name: str) -> MemoryDisk:
        assert self._owner is None, self.name
        copied = MemoryDisk(self.world, name, self._lag, self.dedup)
        copied.image = self._image()
        return copied

    def _image(self) -> Image:
        return {table: dict(rows) for table, rows in self.image.items()}

    def snapshot(self) -> Callable[[], None]:
        image = self._image()

        def restore() -> None:
            assert self._owner is None, self.name
            self.image = image

        return restore

    def lose(self, first: int, last: int) -> None:
        assert self._owner is None, self.name
        for table, column in (("trans", 1), ("obj", 2)):
            rows = self.image[table]
            self.image[table] = {
                key: row for key, row in rows.items() if not first <= row[column] <= last
            }

    def tables(self) -> Rows:
        return _rows(self.image if self._owner is None else self._owner.memory.image())

    def durable_tables(self) -> Rows:
        return _rows(self.image)

    def references(self) -> dict[int, int]:
        if self._owner is None:
            return {}
        self._owner.memory.validate(self.name)
        return dict(self._owner.memory.held)

    def close(self) -> None:
        """Do nothing: there are no resources outside of the world."""


def _rows(image: Image) -> Rows:
    rows: Rows = {name: sorted(image[name].values()) for name in NAMES if name != "ttrans"}
    rows["ttrans"] = [image["ttrans"][ttid] for ttid in sorted(image["ttrans"])]
    return rows
