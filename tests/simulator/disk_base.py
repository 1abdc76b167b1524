"""Base of all disks of simulated machines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random

from neo.net.fault_sites import FaultSite
from neo.storage.backend.api import Backend, BackendFailure
from neo.storage.blobs.contents import open_disk
from neo.storage.blobs.disk import ContentDisk
from tests.simulator.content_check import check_contents
from tests.simulator.content_disk import SimContentDisk
from tests.simulator.content_volume import ContentVolume
from tests.simulator.disk_check import Rows, check_tables, contents, orphans
from tests.simulator.disk_host import DiskHost, FaultyHost
from tests.simulator.world import Event, Violation, World

OnFailure = Callable[[BackendFailure], None]

#: Typical time of a sync on a good disk.
SYNC_SECONDS = 0.002
#: When a disk is full, a write fails at once with this probability; a commit always does.
FULL_WRITE_CHANCE = 0.2
#: When reads fail, each read fails with this probability: a bad sector is not everywhere.
READ_FAILS_CHANCE = 0.05
#: Part of the disks that have deduplication.
DEDUP_CHANCE = 0.2


class Sync:
    """A sync in progress. It ends with a callback, sooner than planned if the disk is healed."""

    def __init__(self, disk: SimDisk, done: Callable[[], None]) -> None:
        self._disk = disk
        self._done = done
        self._event = self._plan()

    def _plan(self) -> Event:
        disk = self._disk
        return disk.world.call_later(disk.sync_seconds(), self._end, f"{disk.name} synced")

    def _end(self) -> None:
        self._disk.syncs.remove(self)
        self._done()

    def cancel(self) -> None:
        """Cancel the callback: the process does not wait for the sync any more."""
        if self in self._disk.syncs:
            self._disk.syncs.remove(self)
            self._event.cancel()

    def hurry(self) -> None:
        """Use the present speed of the disk for the rest of the sync."""
        self._event.cancel()
        self._event = self._plan()


class SimDisk(ABC):
    """A disk with faults.

    * ``full``: every commit fails, and so does opening.
    * ``failing``: every sync fails, and so does opening.
    * ``unreadable``: some of the reads fail. Each of these failures makes the backend fail.
    * ``slow``: seconds that each sync takes longer than on a good disk.
    * ``dedup``: equal values are kept once; None: the seed chooses.
    """

    def __init__(self, world: World, name: str, dedup: bool | None) -> None:
        self.world = world
        self.name = name
        self.full = False
        self.failing = False
        self.unreadable = False
        self.slow = 0.0
        self.syncs: list[Sync] = []
        self.dedup = world.chance(DEDUP_CHANCE) if dedup is None else dedup
        self._orphans: set[int] = set()
        #: The folder of contents of this machine, and whether it is configured.
        self.has_folder = True
        self.contents = ContentVolume(world, name, self)

    def heal(self) -> None:
        self.full = self.failing = self.unreadable = False
        if self.slow:
            self.slow = 0.0
            for sync in self.syncs:
                sync.hurry()
        self.contents.heal()

    def start_sync(self, done: Callable[[], None]) -> Sync:
        """Start a sync. ``done`` is called when what was written is durable, or the sync has failed."""
        sync = Sync(self, done)
        self.syncs.append(sync)
        return sync

    def sync_seconds(self) -> float:
        return self.world.delay(SYNC_SECONDS) + self.slow

    def failure(self, what: str) -> BackendFailure:
        return BackendFailure(f"{self.name}: {what}")

    def write_fails(self) -> bool:
        """Return whether this write fails, because the disk is full. The commit fails in any case."""
        return self.full and self.world.chance(FULL_WRITE_CHANCE)

    def read_fails(self) -> bool:
        """Return whether this read fails."""
        return self.unreadable and self.world.chance(READ_FAILS_CHANCE)

    def check_usable(self) -> None:
        """Raise BackendFailure if the disk is full or failing."""
        if self.full:
            raise self.failure("no space is left")
        if self.failing or self.read_fails():
            raise self.failure("the disk fails")

    def break_promise(self, random: Random) -> None:  # noqa: B027 - not all disks have what can break
        """Lose durable data at the next crash; see :mod:`tests.simulator.broken_promises`."""

    def open_backend(self, host: DiskHost, failed: OnFailure | None = None) -> Backend:
        """Return an open backend of this disk. Raise BackendFailure while the disk is full or failing.
        ``failed`` runs on the loop's thread when a sync fails; by default that ends the world."""
        backend = self.make_backend(host, self.world.fail if failed is None else failed)
        backend.open()
        rows = self.tables()
        self._orphans = orphans(rows)
        self.check_promised()
        return backend

    def check_promised(self) -> None:
        """Raise Violation unless the contents of all rows are durable. Call it before a node looks for
        lost contents, because it copies them from other nodes."""
        self.contents.check_durable(contents(self.tables()))

    def open(self, host: FaultyHost, failed: OnFailure) -> tuple[Backend, ContentDisk | None]:
        """Return the open database and the open folder, if there is one, of a new process."""
        backend = self.open_backend(host, failed)
        self._fail_at_lock(host, backend)
        folder = SimContentDisk(self.contents, host) if self.has_folder else None
        try:
            open_disk(folder, backend)
        except BackendFailure:
            backend.close()
            raise
        return backend, folder

    def _fail_at_lock(self, host: FaultyHost, backend: Backend) -> None:
        """Have locks of transactions fail where the seed says so."""
        execute = backend.commits.lock

        def lock(ttid: bytes, tid: bytes) -> None:
            if host.fault(FaultSite.DATABASE_FAILS_AT_LOCK):
                raise self.failure("fails on purpose")
            execute(ttid, tid)

        backend.commits.lock = lock  # type: ignore[method-assign]

    @abstractmethod
    def make_backend(
        self, host: DiskHost, failed: OnFailure, dedup: bool | None = None
    ) -> Backend:
        """Return a backend that is not open yet. ``dedup`` overrides the one of this disk."""

    def copy(self, name: str) -> SimDisk:
        """Return another disk with the same content. No process may use this disk at this moment."""
        copied = self.copy_database(name)
        copied.contents = self.contents.copy(name, copied)
        return copied

    @abstractmethod
    def copy_database(self, name: str) -> SimDisk:
        """Return another disk with the same database."""

    @abstractmethod
    def snapshot(self) -> Callable[[], None]:
        """Return a function that restores the durable database of now. Call it when no process uses the
        disk."""

    @abstractmethod
    def lose(self, first: int, last: int) -> None:
        """Lose the transactions from one tid to another. No process may use the disk at this moment."""

    def crash(self) -> None:
        """End the process and cut the power: lose what was not synced."""
        self.contents.crash()
        self.crash_database()

    @abstractmethod
    def crash_database(self) -> None:
        """Lose what was not synced of the database."""

    @abstractmethod
    def tables(self) -> Rows:
        """Return the rows that the process sees, or, if the database is not open, the next one will
        see."""

    @abstractmethod
    def durable_tables(self) -> Rows:
        """Return the rows that survive any crash."""

    @abstractmethod
    def references(self) -> dict[int, int]:
        """Return the data ids that the open backend counts as stored and not voted, and counts."""

    def check(self, quiet: bool = True) -> None:
        """Raise Violation if the tables contradict themselves; see :func:`check_tables`. ``quiet``: no
        transaction is in progress, so that no rows of one may be left."""
        check_tables(self.name, self.tables(), quiet, self._orphans)
        held = self.references() if quiet else {}
        if held:
            raise Violation(f"{self.name}: data is held for no transaction: {sorted(held)[:5]}")
        if quiet:
            check_contents(self.tables(), self.contents)

    def check_pruned(self) -> None:
        """Raise Violation for any data without a reference, after the node has deleted orphans."""
        self.excuse_no_orphans()
        self.check(quiet=True)

    def excuse_no_orphans(self) -> None:
        """Expect no data that a crash left behind any more."""
        self._orphans.clear()

    @abstractmethod
    def close(self) -> None:
        """Remove all resources outside of the simulated world, at its end."""
