"""What all disks of simulated machines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Protocol

from neo.storage.backend.api import Backend, BackendFailure
from tests.simulator.disk_check import Rows, check_tables, orphans
from tests.simulator.world import Event, Violation, World

OnFailure = Callable[[BackendFailure], None]

#: Typical time of a sync on a good disk.
SYNC_SECONDS = 0.002
#: When a disk is full, a write fails at once with this probability; a commit always does.
FULL_WRITE_CHANCE = 0.2
#: When reads fail, one of so many does: a bad sector is not everywhere.
READ_FAILS_CHANCE = 0.05
#: How many disks have deduplication.
DEDUP_CHANCE = 0.2


class DiskShell(Protocol):
    """What a disk needs of the shell of a process."""

    def from_thread(self, callback: Callable[..., None], *args: object) -> object: ...


class Sync:
    """A sync under way. It ends by calling back, sooner than planned if the disk is healed."""

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
        """The process does not wait for it any more."""
        if self in self._disk.syncs:
            self._disk.syncs.remove(self)
            self._event.cancel()

    def hurry(self) -> None:
        """The disk is as fast as it is now."""
        self._event.cancel()
        self._event = self._plan()


class SimDisk(ABC):
    """``full``: nothing more can be committed. ``failing``: each sync fails. Both make the backend
    fail, and opening impossible. ``unreadable``: so do some of the reads, which make it fail, too.
    ``slow``: seconds that each sync takes more than on a good disk.
    ``dedup``: equal values are kept once; None: the seed chooses."""

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

    def heal(self) -> None:
        self.full = self.failing = self.unreadable = False
        if self.slow:
            self.slow = 0.0
            for sync in self.syncs:
                sync.hurry()

    def start_sync(self, done: Callable[[], None]) -> Sync:
        """``done`` is called when what was written is durable, or could not be made so."""
        sync = Sync(self, done)
        self.syncs.append(sync)
        return sync

    def sync_seconds(self) -> float:
        return self.world.delay(SYNC_SECONDS) + self.slow

    def failure(self, what: str) -> BackendFailure:
        return BackendFailure(f"{self.name}: {what}")

    def write_fails(self) -> bool:
        """Whether the disk is full and a write, not only the commit, notices."""
        return self.full and self.world.chance(FULL_WRITE_CHANCE)

    def read_fails(self) -> bool:
        """Whether a read finds an error of the disk."""
        return self.unreadable and self.world.chance(READ_FAILS_CHANCE)

    def check_usable(self) -> None:
        """Raises BackendFailure."""
        if self.full:
            raise self.failure("no space is left")
        if self.failing or self.read_fails():
            raise self.failure("the disk fails")

    def break_promise(self, random: Random) -> None:  # noqa: B027 - not all disks have what can break
        """Lose, at the next crash, what was durable; see :mod:`tests.simulator.broken_promises`."""

    def open_backend(self, shell: DiskShell, failed: OnFailure | None = None) -> Backend:
        """A backend of this disk, open. ``failed`` runs on the loop's thread when a sync fails; by
        default that ends the world. Raises BackendFailure while the disk is full or failing."""
        backend = self.make_backend(shell, self.world.fail if failed is None else failed)
        backend.open()
        self._orphans = orphans(self.tables())
        return backend

    @abstractmethod
    def make_backend(
        self, shell: DiskShell, failed: OnFailure, dedup: bool | None = None
    ) -> Backend:
        """A backend that is not open yet. ``dedup``: other than the one of this disk."""

    @abstractmethod
    def copy(self, name: str) -> SimDisk:
        """Another disk with what this one has, which nobody uses at this moment."""

    @abstractmethod
    def snapshot(self) -> Callable[[], None]:
        """Return what makes the disk go back to what is durable now. To be called when nobody uses it."""

    @abstractmethod
    def lose(self, first: int, last: int) -> None:
        """Lose the transactions from one tid to another. Nobody uses the disk at this moment."""

    @abstractmethod
    def crash(self) -> None:
        """The process is gone and the power fails: lose what was not synced."""

    @abstractmethod
    def tables(self) -> Rows:
        """What the process sees if the database is open, else what the next one will see."""

    @abstractmethod
    def references(self) -> dict[int, int]:
        """Data ids that the open backend thinks are stored and not voted, with their numbers."""

    def check(self, quiet: bool = True) -> None:
        """Raises Violation for tables that contradict themselves; see :func:`check_tables`.

        ``quiet``: no transaction is in progress, so that nothing of one may be left.
        """
        check_tables(self.name, self.tables(), quiet, self._orphans)
        held = self.references() if quiet else {}
        if held:
            raise Violation(f"{self.name}: data is held for no transaction: {sorted(held)[:5]}")

    def check_pruned(self) -> None:
        """Raises Violation for any data without a reference: the node deleted what crashes left."""
        self._orphans.clear()
        self.check(quiet=True)

    @abstractmethod
    def close(self) -> None:
        """End of the world: remove what is outside of it."""
