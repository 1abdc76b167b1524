"""The file system that has the archives: all storage nodes of a world mount it, as one of the network.

Names are durable when the server has them; data is when it was synced. When the server loses power, or a
process that wrote a file is killed, any part of what was not synced is lost, and open files are stale.
Oracles are stricter, and look only at what was synced, data and names (:meth:`ArchiveDisk.durable`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from errno import EIO, ENOENT, ENOSPC, ENOTDIR, ESTALE
from io import BytesIO
from pathlib import Path
from random import Random
from typing import BinaryIO, Protocol, TypeVar

from neo.archive.disk import Output
from neo.archive.room import Disk
from neo.node.task import Future
from tests.simulator.content_disk import CONTENTS, FREE_BYTES
from tests.simulator.content_volume import CALL_SECONDS, ContentVolume, File
from tests.simulator.world import World

T = TypeVar("T")

#: When the disk is full, a write fails with this probability; when reads fail, each one does.
FULL_WRITE_CHANCE = 0.3
READ_FAILS_CHANCE = 0.05


class ArchiveHost(Protocol):
    """The part of a process's host that uses archives. ``dead``: the process has ended."""

    dead: bool

    def from_thread(self, callback: Callable[..., None], *args: object) -> object: ...


class Folder:
    """Names of files and folders, as processes see them, and durable ones."""

    def __init__(self) -> None:
        self.now: dict[str, Folder | File] = {}
        self.durable: dict[str, Folder | File] = {}


class ArchiveDisk:
    """A file system with faults.

    * ``full``: some of the writes fail.
    * ``failing``: every sync fails.
    * ``unreadable``: some of the reads fail.
    * ``slow``: most seconds that each call takes longer.
    """

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.root = Folder()
        #: How often the server has lost its data of open files.
        self.crashes = 0
        self._written: list[tuple[File, ArchiveHost]] = []
        self.heal()

    def heal(self) -> None:
        self.full = self.failing = self.unreadable = False
        self.slow = 0.0

    def lose_power(self) -> None:
        """Lose data that was not synced, and all open files."""
        self.world.log("archives", "lose power")
        self.crashes += 1
        for file, _ in self._written:
            file.crash(self.random)
        self._written.clear()

    def worker(self, host: ArchiveHost, volume: ContentVolume) -> SimWorker:
        """Return the worker of a process. ``volume``: its folder of contents."""
        return SimWorker(self, host, MountedFiles(self, host, volume))

    def wrote(self, file: File, host: ArchiveHost) -> None:
        """Note that a process wrote to a file, which it has not synced."""
        self._written.append((file, host))

    def damage(self, path: Path) -> Callable[[], None]:
        """Flip a bit of a file. Return a function that mends it."""
        file = self.find(path)
        assert isinstance(file, File), path
        intact, data = file.data, bytearray(file.data)
        data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        file.data = bytes(data)
        self.world.log("archives", f"{path} is damaged")

        def mend() -> None:
            file.data = intact

        return mend

    def settle(self) -> None:
        """Lose what processes have not synced that have ended since."""
        for file, host in self._written:
            if host.dead:
                file.crash(self.random)
        self._written = [
            (file, host)
            for file, host in self._written
            if not host.dead and file.data != file.durable
        ]

    def seconds(self) -> float:
        """Return how long a call takes."""
        return CALL_SECONDS * (0.5 + self.random.random()) + self.slow * self.random.random()

    def copy(self, durable: bool) -> MountedFiles:
        """Return a copy for oracles: ``durable``: of what was synced, else of what processes see."""
        self.settle()
        copied = ArchiveDisk(self.world, self.random)
        copied.root = _copy(self.root, durable)
        return MountedFiles(copied, _Oracle(), None)

    def find(self, path: Path) -> Folder | File | None:
        """Return what has a path, None if nothing has."""
        found: Folder | File | None = self.root
        for name in path.parts[1:]:
            if not isinstance(found, Folder):
                return None
            found = found.now.get(name)
        return found


def _copy(folder: Folder, durable: bool) -> Folder:
    copied = Folder()
    for name, each in (folder.durable if durable else folder.now).items():
        if isinstance(each, Folder):
            copied.now[name] = _copy(each, durable)
        else:
            copied.now[name] = File(each.durable if durable else each.data)
    return copied


class _Oracle:
    """Implements ArchiveHost."""

    dead = False

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        callback(*args)
        return None


class _SimOutput:
    """Implements Output."""

    def __init__(self, files: MountedFiles, path: Path, file: File) -> None:
        self._files = files
        self._path = path
        self._file = file
        self._crashes = files.disk.crashes

    def _check(self) -> None:
        if self._crashes != self._files.disk.crashes:
            raise OSError(ESTALE, f"stale file {self._path}")

    def write(self, data: bytes | bytearray) -> None:
        self._check()
        disk, data = self._files.disk, bytes(data)
        disk.wrote(self._file, self._files.host)
        if disk.full and disk.random.random() < FULL_WRITE_CHANCE:
            self._file.data += data[: disk.random.randrange(len(data) + 1)]
            raise OSError(ENOSPC, f"no space is left for {self._path}")
        self._file.data += data

    def sync(self) -> None:
        self._check()
        if self._files.disk.failing:
            self._file.tainted = True
            raise OSError(EIO, f"a sync of {self._path} failed")
        self._file.sync()

    def close(self) -> None: ...


@dataclass
class MountedFiles:
    """Implements Files of :mod:`neo.archive.disk` for one process: also its contents can be read."""

    disk: ArchiveDisk
    host: ArchiveHost
    volume: ContentVolume | None

    def create(self, path: Path) -> Output:
        file = File()
        self._folder(path.parent).now[path.name] = file
        return _SimOutput(self, path, file)

    def open(self, path: Path) -> BinaryIO:
        if path.is_relative_to(CONTENTS):
            return BytesIO(self._content(path))
        self._check_read(path)
        found = self.disk.find(path)
        if not isinstance(found, File):
            raise FileNotFoundError(ENOENT, f"no such file: {path}")
        return BytesIO(found.data)

    def _content(self, path: Path) -> bytes:
        assert self.volume is not None
        if (error := self.volume.read_error()) is not None:
            raise error
        file = self.volume.contents.now.get(path.name)
        if file is None:
            raise FileNotFoundError(ENOENT, f"no such content: {path}")
        return file.data

    def _check_read(self, path: Path) -> None:
        self.disk.settle()
        if self.disk.unreadable and self.disk.random.random() < READ_FAILS_CHANCE:
            raise OSError(EIO, f"a read of {path} failed")

    def _folder(self, path: Path) -> Folder:
        self.disk.settle()
        found = self.disk.find(path)
        if found is None:
            raise FileNotFoundError(ENOENT, f"no such folder: {path}")
        if not isinstance(found, Folder):
            raise NotADirectoryError(ENOTDIR, f"no folder: {path}")
        return found

    def exists(self, path: Path) -> bool:
        return self.disk.find(path) is not None

    def folders(self, path: Path) -> list[str]:
        self._check_read(path)
        found = self.disk.find(path)
        if not isinstance(found, Folder):
            return []
        return [name for name, each in sorted(found.now.items()) if isinstance(each, Folder)]

    def replace(self, path: Path, target: Path) -> None:
        folder, other = self._folder(path.parent), self._folder(target.parent)
        if path.name not in folder.now:
            raise FileNotFoundError(ENOENT, f"no such file: {path}")
        other.now[target.name] = folder.now.pop(path.name)

    def unlink(self, path: Path) -> None:
        folder = self._folder(path.parent)
        if path.name not in folder.now:
            raise FileNotFoundError(ENOENT, f"no such file: {path}")
        del folder.now[path.name]

    def make_folder(self, path: Path) -> None:
        self._folder(path.parent).now.setdefault(path.name, Folder())

    def remove_folder(self, path: Path) -> None:
        self._folder(path.parent).now.pop(path.name, None)

    def sync_folder(self, path: Path) -> None:
        folder = self._folder(path)
        if self.disk.failing:
            raise OSError(EIO, f"a sync of {path} failed")
        folder.durable = dict(folder.now)


class SimWorker:
    """Implements Worker: each call takes effect at once, a while after the one before."""

    def __init__(self, disk: ArchiveDisk, host: ArchiveHost, files: MountedFiles) -> None:
        self.files = files
        self._disk = disk
        self._host = host
        self._calls: deque[Callable[[], None]] = deque()

    def call(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = function()
            except Exception as e:  # noqa: BLE001 -- it belongs to the caller
                self._host.from_thread(future.fail, e)
            else:
                self._host.from_thread(future.resolve, result)

        self._calls.append(run)
        if len(self._calls) == 1:
            self._plan()
        return future

    async def disk(self, path: Path) -> Disk | None:
        return Disk(0 if self._disk.full else FREE_BYTES, FREE_BYTES, "archives")

    def _plan(self) -> None:
        self._disk.world.call_later(self._disk.seconds(), self._run, "archives")

    def _run(self) -> None:
        if self._host.dead:
            return
        self._calls[0]()
        self._calls.popleft()
        if self._calls:
            self._plan()
