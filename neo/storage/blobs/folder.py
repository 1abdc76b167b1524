"""The folder of contents on a disk: the ContentDisk of a real process (specification 26.7).

Theory of operation
-------------------
Some threads execute the calls. Those for one part, and for one checksum, go to the same thread, in their
order. A ``keep`` belongs to both, and runs in the thread of its part. Contents that come in one piece
have a thread of their own, the keeper (:mod:`neo.storage.blobs.keeping`). So a lock keeps the arrival of
a name and its removal apart, and a removal that has not begun is given up, because it would come after
the arrival. The holder of the content asks for the removal again, should the content not become durable.
Hashing and input and output release the interpreter, so that pieces of several transfers, and the loop,
go on at the same time.

The kernel writes the bytes of a part to the disk while more of them come. A part becomes a content in
this order: its bytes are synced, it is renamed, the folder of its new name is synced. So no file that has
rows is replaced by one that is not complete.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

from blake3 import blake3

from neo.archive.room import Disk, known_disk
from neo.node.lockfile import LockFile
from neo.protocol.blobs import Content, content_hash
from neo.storage.backend.api import BackendFailure, Schedule
from neo.storage.blobs.disk import BUCKETS, FETCH, ContentMismatch, Done
from neo.storage.blobs.files import WAIT_BEFORE, WRITE, sync_folder, sync_range, write_all
from neo.storage.blobs.keeping import Keeper, Whole

logger = logging.getLogger("neo.storage")

#: Threads: some transfers at a time.
THREADS = 4
#: Bytes that are read together to compute a checksum.
STEP_BYTES = 1 << 20
#: Bytes of a part that are not on their way to the disk. So the sync at its end finds little to write,
#: and the syncs of the database, which share the disk, never wait for a whole content.
WRITE_BACK_BYTES = 8 << 20
PARTS = "parts"
IDENTITY = "identity"
CONDEMNED = "condemned"
LOCK = "lock"

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class _Part:
    """A part that is being received. Used by one thread."""

    __slots__ = ("fd", "hash", "size", "_written_back")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.hash = content_hash()
        self.size = 0
        self._written_back = 0

    def write_back(self) -> None:
        """Have the kernel write what was appended, when it is WRITE_BACK_BYTES, once it has written what
        came before. Raise OSError of an earlier write: the sync at the end would not tell it again."""
        length = self.size - self._written_back
        if length >= WRITE_BACK_BYTES:
            before = max(0, self._written_back - WRITE_BACK_BYTES)
            sync_range(self.fd, before, self._written_back - before, WAIT_BEFORE)
            sync_range(self.fd, self._written_back, length, WRITE)
            self._written_back = self.size


class _Worker:
    """A thread and its queue of calls."""

    def __init__(self, name: str) -> None:
        self.calls: SimpleQueue[Callable[[_Worker], None] | None] = SimpleQueue()
        self.parts: dict[str, _Part] = {}
        self.thread = Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while (call := self.calls.get()) is not None:
            call(self)
        for part in self.parts.values():
            os.close(part.fd)
        self.parts.clear()

    def stop(self) -> None:
        self.calls.put(None)
        self.thread.join()


class ContentFolder:
    """Implements :class:`~neo.storage.blobs.disk.ContentDisk`. ``path``: of the folder.

    ``fill``: accept an empty folder although the database has contents, which are fetched anew.
    """

    def __init__(self, path: str, schedule: Schedule, fill: bool = False) -> None:
        self.path = Path(path)
        self._schedule = schedule
        self._fill = fill
        self._parts = self.path / PARTS
        self._workers: list[_Worker] = []
        self._keeper: Keeper | None = None
        self._lock_file: LockFile | None = None
        self._closed = True
        #: One for each worker's checksums: a content is renamed or removed by one thread at a time.
        self._names = [Lock() for _ in range(THREADS)]
        #: Removals that have not begun: the loop adds and gives up, a thread takes out what it removes.
        self._removals: dict[bytes, object] = {}

    # -- life ------------------------------------------------------------------------------------

    def condemn(self) -> None:
        with self._locked():
            _write_durably(self.path / CONDEMNED, "")
            self._unlock()

    def open(self, identity: str | None, needed: bool = True) -> str:
        with self._locked():
            if (self.path / CONDEMNED).exists():
                self._judge(identity)
            found = self._identify(identity, needed and identity is not None)
            self._clean()
        self._closed = False
        self._keeper = Keeper(f"contents {self.path}", str(self._parts / "whole-"), self._stored)
        self._workers = [_Worker(f"contents {i} {self.path}") for i in range(THREADS)]
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder for this process; not after an error, which is a BackendFailure."""
        try:
            self._lock()
            try:
                yield
            except BaseException:
                self._unlock()
                raise
        except OSError as e:
            raise BackendFailure(
                f"the folder of contents {self.path} cannot be used: {e}. Set blob_dir to a folder that"
                " this process may write"
            ) from e

    def _lock(self) -> None:
        new = not self.path.exists()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock_file = LockFile(self.path / LOCK, 0o600)
        except BlockingIOError:
            raise BackendFailure(
                f"the folder of contents {self.path} is used by another process: give each storage node a"
                " blob_dir of its own"
            ) from None
        if new:
            sync_folder(self.path.parent)

    def _unlock(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _identify(self, identity: str | None, needed: bool) -> str:
        """Return the identity of the folder; create it in a new folder. Raise BackendFailure."""
        path = self.path / IDENTITY
        try:
            found = path.read_text("ascii").strip()
        except FileNotFoundError:
            found = ""
        if not found:
            if needed and not self._fill:
                raise BackendFailure(
                    f"the folder of contents {self.path} is empty, and the database has contents of"
                    " blobs: is the disk mounted? Restore the folder, or start once with --fetch-blobs to"
                    " have them copied from other nodes"
                )
            found = identity or secrets.token_hex(16)
            self._parts.mkdir(mode=0o700, exist_ok=True)
            _write_durably(path, found)
        elif found != identity and (needed or any(self._files())):
            raise BackendFailure(
                f"the folder of contents {self.path} belongs to another database (identity {found}, and"
                f" that of this database is {identity or 'none yet'}): set blob_dir to the folder of this"
                " database, or restore the database that belongs to the folder"
            )
        return found

    def _files(self) -> list[Path]:
        return [each for each in self.path.glob("[0-9a-f][0-9a-f]/*") if each.is_file()]

    def _judge(self, identity: str | None) -> None:
        """Delete all, in an order that can be interrupted, if the database has been erased."""
        if identity is None:
            for each in (*self._files(), *self._parts.glob("*"), self.path / IDENTITY):
                each.unlink(missing_ok=True)
            for folder in {self.path, *(each for each in self.path.iterdir() if each.is_dir())}:
                sync_folder(folder)
        (self.path / CONDEMNED).unlink()

    def _clean(self) -> None:
        self._parts.mkdir(mode=0o700, exist_ok=True)
        for each in self._parts.iterdir():
            if not each.name.startswith(FETCH):
                each.unlink(missing_ok=True)
        for bucket in range(BUCKETS):
            (self.path / f"{bucket:02x}").mkdir(mode=0o700, exist_ok=True)
        sync_folder(self.path)

    def close(self) -> None:
        self._closed = True
        for worker in self._workers:
            worker.stop()
        self._workers = []
        if self._keeper is not None:
            self._keeper.stop()
            self._keeper = None
        self._unlock()

    # -- calls -----------------------------------------------------------------------------------

    def _run(self, number: int, call: Callable[[_Worker], Callable[[], None]]) -> None:
        """Have a worker execute a call, and the loop what it returns."""
        if self._closed:
            return

        def run(worker: _Worker) -> None:
            done = call(worker)
            if not self._closed:
                self._schedule(self._tell, done)

        self._workers[number % THREADS].calls.put(run)

    def _tell(self, done: Callable[[], None]) -> None:
        if not self._closed:
            done()

    def _simple(self, number: int, call: Callable[[_Worker], object], done: Done) -> None:
        """Execute a call whose result is None or an error."""

        def run(worker: _Worker) -> Callable[[], None]:
            try:
                call(worker)
            except (OSError, ContentMismatch) as e:
                error = _explained(e)
                return lambda: done(error)
            return lambda: done(None)

        self._run(number, run)

    def file(self, checksum: bytes) -> Path:
        """Return the path of a content's file."""
        name = checksum.hex()
        return self.path / name[:2] / name

    # -- parts -----------------------------------------------------------------------------------

    def append(self, part: str, offset: int, data: bytes, done: Done) -> None:
        def call(worker: _Worker) -> None:
            if offset == 0:
                self._drop(worker, part)
                worker.parts[part] = self._create(part)
            open_part = worker.parts.get(part)
            if open_part is None or open_part.size != offset:
                raise ContentMismatch(f"part {part} does not have {offset} bytes")
            try:
                write_all(open_part.fd, data)
                open_part.hash.update(data)
                open_part.size += len(data)
                open_part.write_back()
            except OSError:
                self._drop(worker, part)  # its room is needed
                raise

        self._simple(hash(part), call, done)

    def _create(self, part: str) -> _Part:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return _Part(os.open(self._parts / part, flags, 0o600))

    def resume(self, part: str, done: Callable[[int | Exception], None]) -> None:
        def run(worker: _Worker) -> Callable[[], None]:
            size: int | Exception
            try:
                size = self._resume(worker, part)
            except OSError as e:
                size = _explained(e)
            return lambda: done(size)

        self._run(hash(part), run)

    def _resume(self, worker: _Worker, part: str) -> int:
        if part in worker.parts:
            return worker.parts[part].size
        try:
            fd = os.open(self._parts / part, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        found = worker.parts[part] = _Part(fd)
        found.size = _hash_file(fd, found.hash)
        return found.size

    def fetched(self, done: Callable[[list[str] | Exception], None]) -> None:
        def run(worker: _Worker) -> Callable[[], None]:
            found: list[str] | Exception
            try:
                found = sorted(name for name in os.listdir(self._parts) if name.startswith(FETCH))
            except OSError as e:
                found = _explained(e)
            return lambda: done(found)

        self._run(0, run)

    def keep(self, part: str, content: Content, done: Done) -> None:
        def call(worker: _Worker) -> None:
            try:
                self._keep(worker, part, content)
            except (OSError, ContentMismatch):
                self._drop(worker, part)
                raise
            os.close(worker.parts.pop(part).fd)

        if not self._closed:
            self._removals.pop(content.checksum, None)
            self._simple(hash(part), call, done)

    def _keep(self, worker: _Worker, part: str, content: Content) -> None:
        open_part = worker.parts.get(part)
        if open_part is None:
            raise ContentMismatch(f"part {part} is gone")
        _compare(part, open_part.size, open_part.hash, content)
        os.fsync(open_part.fd)
        file = self.file(content.checksum)
        with self._names[content.checksum[0] % THREADS]:
            os.replace(self._parts / part, file)
        sync_folder(file.parent)

    def store(self, data: bytes, content: Content, lost: bool, done: Done) -> None:
        if self._keeper is not None and not self._closed:
            self._removals.pop(content.checksum, None)
            name = content.checksum.hex()
            lock = self._names[content.checksum[0] % THREADS]
            self._keeper.keep(
                Whole(data, content, f"{self.path}/{name[:2]}/{name}", lock, lost, done)
            )

    def _stored(self, group: list[Whole]) -> None:
        """Have the loop call back. In the keeper's thread."""

        def tell() -> None:
            for whole in group:
                if not self._closed:  # by the one before
                    whole.done(whole.error and _explained(whole.error))

        if not self._closed:
            self._schedule(tell)

    def drop(self, part: str) -> None:
        def call(worker: _Worker) -> None:
            self._drop(worker, part)

        self._simple(hash(part), call, _log_error)

    def _drop(self, worker: _Worker, part: str) -> None:
        open_part = worker.parts.pop(part, None)
        if open_part is not None:
            os.close(open_part.fd)
        with suppress(FileNotFoundError):
            os.unlink(self._parts / part)

    # -- contents --------------------------------------------------------------------------------

    def read(
        self, checksum: bytes, offset: int, length: int, done: Callable[[bytes | Exception], None]
    ) -> None:
        def run(worker: _Worker) -> Callable[[], None]:
            data: bytes | Exception
            try:
                fd = os.open(self.file(checksum), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    data = os.pread(fd, length, offset)
                finally:
                    os.close(fd)
            except OSError as e:
                data = _explained(e)
            return lambda: done(data)

        self._run(checksum[0], run)

    def verify(self, content: Content, done: Done) -> None:
        def call(worker: _Worker) -> None:
            path = self.file(content.checksum)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                found = content_hash()
                _compare(str(path), _hash_file(fd, found), found, content)
            finally:
                os.close(fd)

        self._simple(content.checksum[0], call, done)

    def remove(self, checksum: bytes, done: Done) -> None:
        removal = self._removals[checksum] = object()

        def call(worker: _Worker) -> None:
            with self._names[checksum[0] % THREADS], suppress(FileNotFoundError):
                # A later keep has given this up, or waits for the lock.
                if self._removals.get(checksum) is removal and self._removals.pop(checksum, None):
                    os.unlink(self.file(checksum))

        self._simple(checksum[0], call, done)

    def names(self, bucket: int, done: Callable[[list[bytes] | Exception], None]) -> None:
        def run(worker: _Worker) -> Callable[[], None]:
            found: list[bytes] | Exception
            try:
                listed = os.listdir(self.path / f"{bucket:02x}")
                found = sorted(bytes.fromhex(name) for name in listed if _is_name(name, bucket))
            except OSError as e:
                found = _explained(e)
            return lambda: done(found)

        self._run(bucket, run)

    def room(self) -> Disk | None:
        return known_disk(Path(self.path))


def _is_name(name: str, bucket: int) -> bool:
    prefix = f"{bucket:02x}"
    return len(name) == 64 and name.startswith(prefix) and not set(name) - set("0123456789abcdef")


def _compare(name: str, size: int, found: blake3, content: Content) -> None:
    if size != content.size:
        raise ContentMismatch(f"{name} has {size} bytes, and content {content} has another length")
    if found.digest() != content.checksum:
        raise ContentMismatch(f"{name} does not match its checksum {content.checksum.hex()}")


def _hash_file(fd: int, found: blake3) -> int:
    """Add the bytes of a file to a checksum, and return their number. The position is then its end."""
    size = os.lseek(fd, 0, os.SEEK_SET)
    while data := os.read(fd, STEP_BYTES):
        found.update(data)
        size += len(data)
    return size


def _write_durably(path: Path, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def _explained(error: OSError | ContentMismatch) -> OSError | ContentMismatch:
    """Return an error that says what to do."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        where = f" ({error.filename})" if error.filename else ""
        return OSError(
            error.errno,
            f"no space is left for contents of blobs{where}: make room on the disk of blob_dir",
        )
    return error


def _log_error(error: Exception | None) -> None:
    if error is not None:
        logger.error("a part of a content could not be deleted: %s", error)
