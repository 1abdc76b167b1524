"""The folder of contents of a simulated machine: what is on its disk, and what a crash leaves of it.

Data and names become durable one after the other, as on a real disk. A part is synced before it gets
the name of its content, and the folder afterwards; a content that comes whole may be written under its
name. A crash keeps any part of the data, and any of the new and old names, that were not synced.

The folder is on the disk of the database, and fails with it, or on a disk of its own (the seed decides).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from errno import EIO, ENOSPC
from random import Random
from typing import TYPE_CHECKING, Protocol

from neo.protocol.blobs import content_hash
from neo.storage.blobs.disk import FETCH
from tests.simulator.world import Violation, World

if TYPE_CHECKING:
    from tests.simulator.content_disk import SimContentDisk

#: Part of the machines that have a disk of its own for contents.
SEPARATE_CHANCE = 0.5
#: Typical time of a read or a write, and of a sync.
CALL_SECONDS = 0.0005
SYNC_SECONDS = 0.003
#: When the disk is full, a write fails with this probability; when reads fail, each one does.
FULL_WRITE_CHANCE = 0.5
READ_FAILS_CHANCE = 0.1


class Health(Protocol):
    """The faults of a disk: those of :class:`~tests.simulator.disk_base.SimDisk`."""

    full: bool
    failing: bool
    unreadable: bool
    slow: float


class OwnHealth:
    """The faults of a disk that has only contents."""

    def __init__(self) -> None:
        self.heal()

    def heal(self) -> None:
        self.full = self.failing = self.unreadable = False
        self.slow = 0.0


class File:
    """A file. ``durable``: what a crash leaves at least. ``tainted``: a sync failed, so that later syncs
    succeed and save nothing of what was written before."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.durable = data
        self.tainted = False

    def sync(self) -> None:
        if not self.tainted:
            self.durable = self.data

    def crash(self, random: Random) -> None:
        """Lose what was not synced, or a part of it."""
        if self.data == self.durable:
            return
        how = random.choice(("lost", "beginning", "hole", "kept"))
        if how == "lost":
            self.data = self.durable
        elif how == "beginning":
            low, high = sorted((len(self.durable), len(self.data)))
            self.data = self.data[: random.randint(low, high)]
        elif how == "hole":
            self.data = self.durable + bytes(max(0, len(self.data) - len(self.durable)))
        self.durable = self.data
        self.tainted = False


class Names:
    """A folder: names of files, durable and as processes see them."""

    def __init__(self) -> None:
        self.now: dict[str, File] = {}
        self.durable: dict[str, File] = {}

    def sync(self, name: str) -> None:
        if name in self.now:
            self.durable[name] = self.now[name]
        else:
            self.durable.pop(name, None)

    def crash(self, random: Random) -> None:
        for name in sorted({*self.now, *self.durable}):
            if self.now.get(name) is not self.durable.get(name) and random.random() < 0.5:
                self.sync(name)
        self.now = dict(self.durable)
        for name in sorted(self.now):
            self.now[name].crash(random)


class ContentVolume:
    """A machine's folder of contents. ``health``: the faults of the database's disk.

    ``faulty``: checksums of contents that a fault damaged, removed or left behind here, which oracles
    excuse.
    """

    def __init__(self, world: World, name: str, health: Health) -> None:
        self.world = world
        self.name = name
        # A generator of its own, so that runs without blobs stay the same.
        self.random = Random(f"contents {world.seed} {name} {world.events}")
        self.own = OwnHealth() if self.random.random() < SEPARATE_CHANCE else None
        self.health: Health = health if self.own is None else self.own
        self.identity: str | None = None
        #: The database is erased next.
        self.condemned = False
        #: By hexadecimal checksum, and by name of the part.
        self.contents = Names()
        self.parts = Names()
        self.faulty: set[str] = set()
        #: Contents that the process could not delete: the sweep of the next one does.
        self.left: set[str] = set()
        self.owner: SimContentDisk | None = None

    @property
    def used(self) -> bool:
        """Return whether any content was ever received here."""
        return bool(self.contents.durable or self.contents.now or self.parts.now)

    # -- faults ------------------------------------------------------------------------------------

    def heal(self) -> None:
        if self.own is not None:
            self.own.heal()
        if self.owner is not None:
            self.owner.hurry()

    def error(self, number: int, what: str) -> OSError:
        return OSError(number, f"{what} [{self.name}'s folder of contents]")

    def write_error(self) -> OSError | None:
        """Return the error of this write, if it fails."""
        if self.health.full and self.random.random() < FULL_WRITE_CHANCE:
            return self.error(ENOSPC, "no space is left")
        return None

    def read_error(self) -> OSError | None:
        if self.health.unreadable and self.random.random() < READ_FAILS_CHANCE:
            return self.error(EIO, "a read failed")
        return None

    def seconds(self, typical: float) -> float:
        return typical * (0.5 + self.random.random()) + self.health.slow * self.random.random()

    def damage(self, name: str) -> str:
        """Damage a content that is durable: change bytes, truncate or delete its file. Return what was
        done."""
        file = self.contents.durable[name]
        how = self.random.choice(("flip", "truncate", "delete"))
        if how == "delete" or not file.data:
            self.contents.now.pop(name, None)
            self.contents.durable.pop(name)
            how = "delete"
        elif how == "truncate":
            file.data = file.durable = file.data[: self.random.randrange(len(file.data))]
        else:
            data = bytearray(file.data)
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            file.data = file.durable = bytes(data)
        self.faulty.add(name)
        return f"content {name[:16]}: {how}"

    # -- the process -------------------------------------------------------------------------------

    def opened(self) -> None:
        """Delete parts of uploads, which no process goes on with."""
        self.left.clear()
        for part in [part for part in self.parts.now if is_upload(part)]:
            del self.parts.now[part]

    # -- the machine -------------------------------------------------------------------------------

    def crash(self) -> None:
        """End the process and cut the power."""
        if self.owner is not None:
            self.owner.abandon()
        self.contents.crash(self.random)
        self.parts.crash(self.random)
        # A file has one name, also if the power fails while it is renamed.
        renamed = {id(file) for file in self.contents.now.values()}
        for names in (self.parts.now, self.parts.durable):
            for name in [name for name, file in names.items() if id(file) in renamed]:
                del names[name]

    def copy(self, name: str, health: Health) -> ContentVolume:
        """Return another folder with the same content. No process may use this one."""
        assert self.owner is None, self.name
        copied = ContentVolume(self.world, name, health)
        copied.identity = self.identity
        copied.faulty = set(self.faulty)
        for mine, other in ((self.contents, copied.contents), (self.parts, copied.parts)):
            other.durable = {name: File(file.data) for name, file in mine.now.items()}
            other.now = dict(other.durable)
        return copied

    def snapshot(self) -> Callable[[], None]:
        """Return a function that restores the durable files of now. What it takes away is faulty then,
        for a database that does not go back."""
        identity = self.identity
        files = {name: file.durable for name, file in self.contents.durable.items()}
        parts = {name: file.durable for name, file in self.parts.durable.items()}

        def restore() -> None:
            assert self.owner is None, self.name
            self.identity = identity
            self.faulty.update(set(self.contents.durable).difference(files))
            for names, old in ((self.contents, files), (self.parts, parts)):
                names.durable = {name: File(data) for name, data in old.items()}
                names.now = dict(names.durable)

        return restore

    def names(self) -> set[str]:
        """Return the names of all contents that are durable."""
        return set(self.contents.durable)

    # -- oracles -----------------------------------------------------------------------------------

    def intact(self) -> Iterable[str]:
        """Return the names of contents whose file has the right bytes, on the disk at this moment."""
        return (name for name, file in self.contents.now.items() if checksum_of(file.data) == name)

    def check_durable(self, needed: Iterable[str]) -> None:
        """Raise Violation unless these contents are durable, if no fault took them."""
        for name in needed:
            file = self.contents.durable.get(name)
            if name in self.faulty or (file is not None and checksum_of(file.durable) == name):
                continue
            raise Violation(
                f"{self.name}: a record that is committed or voted refers to content {name[:16]},"
                f" which is {'missing' if file is None else 'not all'} on the disk"
            )


def is_upload(part: str) -> bool:
    """Return whether a part is of an upload. Fetches go on with theirs."""
    return not part.startswith(FETCH)


def checksum_of(data: bytes) -> str:
    """Return the hexadecimal checksum of a content."""
    found = content_hash()
    found.update(data)
    return found.hexdigest()
