"""The folder in which a client keeps contents of blobs, as files that applications read.

Theory of operation
-------------------
The folder is a cache that processes of one machine share, and that outlives them. A revision is the file
``XX/OID.TID.blob``; XX is the last byte of the oid. It appears by a rename, so that it is complete, and
never changes. ``downloads`` has files that are being downloaded. Files of the application (IBlobStorage's
``temporaryDirectory``) and of transactions in progress belong to one process. They are in ``tmp``, or in
``tmp`` of a folder in ``processes`` if another process has that one. Whoever uses the cache next removes
those of processes that have ended (:mod:`neo.client.blobs.owned`). ``.cluster`` has the name of the
cluster, so that no other folder is taken for the cache.

A download has a file ``downloads/OID.TID.part``, and a lock on it: other threads and processes wait for
its end instead of downloading the same. The lock ends with its process, and the next one begins anew.

A file that is handed out gets a new time of modification, under a shared lock; the eviction
(:mod:`neo.client.blobs.eviction`) takes the lock for itself, and spares recent files. So an application
can open a file that it was just given. One whose time is new enough needs neither lock nor time: the
eviction spares it for long enough.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ZODB.blob import rename_or_copy_blob

from neo.client.blobs.owned import OWNER, TEMPORARY, OwnedFolder, remove_abandoned
from neo.client.errors import ConfigurationError
from neo.net.host import ThreadHost

#: Pause of a thread that waits for the download of another one.
POLL_SECONDS = 0.02
#: A file whose time is not older is handed out as it is. The eviction spares files for a minute more.
FRESH_SECONDS = 30.0
#: Has files that are being downloaded.
DOWNLOADS = "downloads"
PROCESSES = "processes"
#: Has the name of the cluster.
CLUSTER = ".cluster"
#: Begins the name of a temporary folder.
PREFIX = "neo-blobs-"
#: Names of two lock files. Processes lock the first one to hand out or remove a file, the second one to
#: look for files that can be removed.
LOCK = ".lock"
EVICTION = ".eviction"
#: Other entries of the folder, also those of earlier releases.
_OWN = {DOWNLOADS, TEMPORARY, PROCESSES, LOCK, EVICTION, OWNER}
_BUCKETS = {f"{number:02x}" for number in range(256)}
SUFFIX = ".blob"
PART = ".part"
#: Begins the names of files of transactions.
PENDING = "pending-"


class BlobCache:
    """``path``: of the folder; None for a temporary one, which is made when it is needed, and removed at
    the end of the process. ``cluster``: whose contents are in the folder. Thread-safe. Methods raise
    OSError, which names the file; ConfigurationError if the folder is another thing."""

    def __init__(self, host: ThreadHost, path: str | None, cluster: str) -> None:
        self._host = host
        self._cluster = cluster
        # The folder of this process: of its temporary files, or the root if that is a temporary one.
        self._own: OwnedFolder | None = None
        self._given = path
        self._root: Path | None = None
        self._making = host.lock()
        self._lock_fd: int | None = None
        #: Threads of this process share one descriptor of the lock.
        self._locking = threading.Lock()
        #: Called with the bytes that were added to the folder.
        self.added: Callable[[int], None] = lambda size: None

    # -- the folder --------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The folder, which exists."""
        if self._root is None:
            with self._making:
                if self._root is None:
                    self._root = self._make()
        return self._root

    def _make(self) -> Path:
        root = Path(tempfile.gettempdir() if self._given is None else os.path.abspath(self._given))
        try:
            if self._given is None:
                remove_abandoned(str(root), PREFIX)
                self._own = OwnedFolder.new(str(root), PREFIX)
                root = self._own.path
                (root / DOWNLOADS).mkdir(mode=0o700)
            else:
                self.check()
                for folder in (DOWNLOADS, PROCESSES):
                    (root / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
                with suppress(FileExistsError), open(root / CLUSTER, "x", encoding="utf-8") as file:
                    file.write(self._cluster)
                remove_abandoned(str(root / PROCESSES), "")
                self._own = OwnedFolder.taken(root)
                if self._own is None:
                    self._own = OwnedFolder.new(str(root / PROCESSES), "")
            for name in (LOCK, EVICTION):
                (root / name).touch(mode=0o600)
        except OSError as e:
            raise self._unusable(root, e) from None
        weakref.finalize(self, self._own.remove)
        return root

    def _unusable(self, root: Path, error: OSError) -> ConfigurationError:
        text = f"blob_dir {str(root)!r} cannot be used: {error}"
        if isinstance(error, PermissionError):
            text += (
                f"; the user with id {os.geteuid()} must be able to read, write and enter the folder, and"
                " all in it. Files are made for their user alone: all processes that share a folder run"
                " as the same user"
            )
        return ConfigurationError(text)

    def check(self) -> None:
        """Raise ConfigurationError if the given folder exists, and is not the cache of this cluster."""
        if self._given is None:
            return
        root = Path(os.path.abspath(self._given))
        try:
            names = set(os.listdir(root))
            name = (root / CLUSTER).read_text("utf-8") if CLUSTER in names else None
        except FileNotFoundError:
            return
        except (OSError, ValueError) as e:
            if isinstance(e, OSError):
                raise self._unusable(root, e) from None
            name = "?"
        what = None
        if name is not None:
            # Without a name it was made by a process that writes it now, or was killed.
            if name and name != self._cluster:
                what = f"the cache of cluster {name!r}, not of {self._cluster!r}"
        elif ".layout" in names:
            what = "the folder of blobs of another storage, such as a FileStorage"
        elif foreign := names - _BUCKETS - _OWN:
            what = f"no cache: it has other files, such as {min(foreign)!r}"
        if what is not None:
            raise ConfigurationError(
                f"blob_dir {str(root)!r} is {what}; give this client another folder, which may be empty"
            )

    @property
    def open(self) -> Path | None:
        """The folder, if it is in use: who only removes files must not make it anew."""
        return self._root

    @property
    def made(self) -> bool:
        """Whether there is a folder."""
        given = self._given
        return self._root is not None or (given is not None and os.path.isdir(given))

    @property
    def temporary(self) -> str:
        """A folder for temporary files of this process, on the same disk."""
        assert self.root and self._own is not None
        return str(self._own.temporary)

    def path(self, oid: bytes, tid: bytes) -> str:
        """Return where a revision is, if it is here."""
        return f"{self.root}/{oid[7]:02x}/{oid.hex()}.{tid.hex()}{SUFFIX}"

    def forked(self) -> None:
        """Share nothing with the parent but the folder of many processes. Call in the child of a fork."""
        self._root = None
        if self._own is not None:
            self._own.remove()  # only forgets it, because it is the parent's
            self._own = None
        self._locking = threading.Lock()
        self._making = self._host.lock()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def close(self) -> None:
        """Remove temporary files, and a temporary folder. Idempotent."""
        with self._locking:
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None
        own, self._own, self._root = self._own, None, None
        if own is not None:
            own.remove()

    # -- files -------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, operation: int, root: Path | None = None) -> Iterator[None]:
        """Hold the lock of all processes: LOCK_SH to hand out a file, LOCK_EX to remove files. ``root``:
        the folder that is in use."""
        root = root or self.root
        with self._locking:
            if self._lock_fd is None:
                self._lock_fd = os.open(root / LOCK, os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self._lock_fd, operation)
            try:
                yield
            finally:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def take(self, path: str) -> str:
        """Move a file of the application to the files of transactions in progress. Return its new
        path."""
        fd, taken = tempfile.mkstemp(prefix=PENDING, dir=self.temporary)
        os.close(fd)
        rename_or_copy_blob(path, taken, chmod=False)
        return taken

    def find(self, oid: bytes, tid: bytes, size: int) -> str | None:
        """Return the path of a revision, which the eviction spares for a while; None if it is not here. A
        file of another size is damaged: it is removed."""
        path = self.path(oid, tid)
        try:
            status = os.stat(path)
            if status.st_size == size and status.st_mtime > time.time() - FRESH_SECONDS:
                return path
            with self.lock(fcntl.LOCK_SH):
                if os.stat(path).st_size == size:
                    os.utime(path)
                    return path
                os.unlink(path)
        except FileNotFoundError:
            pass
        return None

    def keep(self, oid: bytes, tid: bytes, source: str) -> str:
        """Make a complete file the one of a revision. Return its path."""
        path = self.path(oid, tid)
        size = os.stat(source).st_size
        while True:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            try:
                os.utime(source)
                rename_or_copy_blob(source, path)
                break
            except FileNotFoundError:
                # Another process removed the folder, which was empty.
                if not os.path.exists(source):
                    raise
        self.added(size)
        return path

    def fetch(
        self,
        oid: bytes,
        tid: bytes,
        size: int,
        download: Callable[[BinaryIO], None],
        waits: Callable[[int], object],
    ) -> str:
        """Return the path of a revision. If its file is not here, call ``download`` with an empty file to
        fill; no other thread or process downloads the revision at the same time. ``waits``: called while
        another thread or process downloads it, with the bytes that have arrived; an exception of
        ``waits`` ends the wait."""
        while (found := self.find(oid, tid, size)) is None:
            part = os.path.join(self.root, DOWNLOADS, f"{oid.hex()}.{tid.hex()}{PART}")
            with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    waits(os.fstat(file.fileno()).st_size)
                    self._host.sleep(POLL_SECONDS)
                    continue
                if not _is_at(file, part):
                    continue  # it was renamed, or removed, before it was locked
                if os.path.exists(self.path(oid, tid)):
                    os.unlink(part)  # the download of another one ended since the look above
                    continue
                try:
                    file.truncate()
                    download(file)
                    file.flush()
                    return self.keep(oid, tid, part)
                except BaseException:
                    with suppress(FileNotFoundError):
                        os.unlink(part)
                    raise
        return found

    def discard(self, path: str) -> None:
        """Remove a file of a transaction."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def forget(self, oid: bytes, tid: bytes) -> None:
        """Remove the file of a revision that is gone, and its folder if that is empty."""
        path = self.path(oid, tid)
        with self.lock(fcntl.LOCK_EX):
            with suppress(FileNotFoundError):
                os.unlink(path)
            with suppress(OSError):  # the folder has other files
                os.rmdir(os.path.dirname(path))

    def revisions(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (oid, tid) of all files."""
        for bucket in buckets(self.root):
            for entry in files(bucket):
                oid, tid, _ = entry.name.split(".")
                yield bytes.fromhex(oid), bytes.fromhex(tid)


def buckets(root: Path) -> list[Path]:
    """Return the folders with files of revisions."""
    return [root / name for name in sorted(_BUCKETS.intersection(os.listdir(root)))]


def files(folder: Path) -> list[os.DirEntry[str]]:
    """Return the files of revisions in a folder, which may have been removed."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.endswith(SUFFIX)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_at(file: BinaryIO, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
