"""Contents that come in one piece become durable, many at a time (specification 26.27).

Theory of operation
-------------------
One thread takes all contents that wait, as a *group*, and goes through the steps of a content with all
of them: each is written to a file, each file is synced, each folder that got a name is synced, the
results are told. While a group is synced, the next one comes: the slower the disk, the larger the groups.
The kernel gets all names and bytes of a group before the first sync waits: so a file system with a
journal writes it once for a group, and not twice for each content.

A content is written under its own name if no file has it. A crash may leave such a name without all of
its bytes. No row refers to it then, so that it is removed, or replaced by the next store. If a file has
the name, or rows are known to have lost theirs, the content is written to a part, which is synced before
it gets the name.

The keeper's own thread makes the syncs while they are short: to hand work to other threads of the same
interpreter costs more than such a sync. If the syncs of a group took more than SHORT_SECONDS each, on
average, SYNCS threads make those of the next group, because a slow disk does several at a time.

Each file and each folder has a sync of its own, whose error is that of this file or folder. One syncfs(2)
instead, measured with groups of 64 files of 10 KiB, took 0.7 to 0.9 times as long on ext4 without a
journal, and 0.8 to 2 times with one. It would sync what other programs write, too, and whether it tells
all errors, and syncs names, depends on the kernel and the file system.

Bounds: a group has at most GROUP_MAX contents, whose files are open. Those that wait are bounded by the
jobs of the peers that sent them (:mod:`neo.node.backlog`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from neo.protocol.blobs import Content, content_hash
from neo.storage.blobs.disk import ContentMismatch, Done
from neo.storage.blobs.files import WRITE, sync_folder, sync_range, write_all

T = TypeVar("T")

#: Contents of a group: so many share their syncs that each one costs little.
GROUP_MAX = 64
#: Threads that sync on a slow disk. More of them were not faster.
SYNCS = 4
#: Mean duration of a sync up to which the keeper's own thread makes all of them. Measured with contents
#: of 10 KiB, a hundred a transaction, on a disk that others used too: the threads saved a tenth to a
#: quarter of the time, and cost a third more of the processor.
SHORT_SECONDS = 0.0003

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


@dataclass(eq=False, slots=True)
class Whole:
    """A content. ``file``: its path. ``lock``: held while this name comes or goes. ``as_part``: do not
    write it under its name. ``path``: of the file to which it is written."""

    data: bytes
    content: Content
    file: str
    lock: Lock
    as_part: bool
    done: Done
    path: str = ""
    fd: int = -1
    error: OSError | ContentMismatch | None = None


class Keeper:
    """``parts``: begins the paths of files that are no contents yet, which no other thread uses.
    ``tell``: is given the results of a group, in the keeper's thread."""

    def __init__(self, name: str, parts: str, tell: Callable[[list[Whole]], None]) -> None:
        self._parts = [f"{parts}{number}" for number in range(GROUP_MAX)]
        self._tell = tell
        self._calls: SimpleQueue[Whole | None] = SimpleQueue()
        self._pool = ThreadPoolExecutor(SYNCS, f"{name} sync")
        #: Mean duration of a sync of the last group.
        self._seconds = 0.0
        self._thread = Thread(target=self._run, name=f"{name} keep", daemon=True)
        self._thread.start()

    def keep(self, whole: Whole) -> None:
        """Make a content durable, and tell."""
        self._calls.put(whole)

    def stop(self) -> None:
        """Wait for the contents that were given until now."""
        self._calls.put(None)
        self._thread.join()
        self._pool.shutdown()

    def _run(self) -> None:
        following = self._calls.get()
        while following is not None:
            group = [following]
            with suppress(Empty):
                while (following := self._calls.get_nowait()) is not None:
                    group.append(following)
                    if len(group) == GROUP_MAX:
                        break
            self._keep(group)
            if following is not None:
                following = self._calls.get()

    # -- a group ---------------------------------------------------------------------------------

    def _keep(self, group: list[Whole]) -> None:
        """Make all of a group durable. Nothing is told before all of it is, or has failed."""
        for whole, part in zip(group, self._parts, strict=False):
            _attempt(partial(_write, part), whole)
        written = [whole for whole in group if whole.error is None]
        if len(written) > 1:
            for whole in written:
                _attempt(_begin_sync, whole)
        seconds = self._sync(_sync_file, written)
        folders: dict[str, list[Whole]] = {}
        for whole in written:
            _attempt(_rename, whole)
            if whole.error is None:
                folders.setdefault(os.path.dirname(whole.file), []).append(whole)
        seconds += self._sync(_sync_folder_of, list(folders.values()))
        self._seconds = seconds / (len(written) + len(folders) or 1)
        for whole in group:
            _close(whole)
        self._tell(group)

    def _sync(self, call: Callable[[T], None], items: list[T]) -> float:
        """Make a call with each item. Return the sum of the times that the calls took."""
        threads = min(SYNCS, len(items)) if self._seconds > SHORT_SECONDS else 1
        begin = time.monotonic()
        if threads <= 1:
            for item in items:
                call(item)
        else:

            def several(first: int) -> None:
                for item in items[first::threads]:
                    call(item)

            list(self._pool.map(several, range(threads)))
        return (time.monotonic() - begin) * threads


# -- steps ------------------------------------------------------------------------------------------


def _attempt(step: Callable[[Whole], None], whole: Whole) -> None:
    """Do the next step, unless one before has failed."""
    if whole.error is None:
        try:
            step(whole)
        except (OSError, ContentMismatch) as e:
            whole.error = e


def _write(part: str, whole: Whole) -> None:
    found = content_hash()
    found.update(whole.data)
    if found.digest() != whole.content.checksum:
        raise ContentMismatch(f"it does not match its checksum {whole.content.checksum.hex()}")
    if whole.as_part or not _create(whole):
        whole.fd = os.open(part, _FLAGS | os.O_TRUNC, 0o600)
        whole.path = part
    write_all(whole.fd, whole.data)


def _create(whole: Whole) -> bool:
    """Create the file under its name. Return False if there is one."""
    with whole.lock:
        try:
            whole.fd = os.open(whole.file, _FLAGS | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
    whole.path = whole.file
    return True


def _begin_sync(whole: Whole) -> None:
    sync_range(whole.fd, 0, whole.content.size, WRITE)


def _sync_file(whole: Whole) -> None:
    _attempt(lambda whole: os.fsync(whole.fd), whole)


def _rename(whole: Whole) -> None:
    if whole.path != whole.file:
        with whole.lock:
            os.replace(whole.path, whole.file)


def _sync_folder_of(wholes: list[Whole]) -> None:
    """Sync a folder that got these names. After an error they may be there after a crash, or not: no row
    refers to them, so that they are removed, or belong to rows that had equal contents before."""
    try:
        sync_folder(os.path.dirname(wholes[0].file))
    except OSError as e:
        for whole in wholes:
            whole.error = e


def _close(whole: Whole) -> None:
    """Close the file, and delete it after an error, unless its name is another file's by now."""
    if whole.fd >= 0:
        if whole.error is not None:
            with suppress(OSError), whole.lock:
                if os.path.samestat(os.fstat(whole.fd), os.stat(whole.path)):
                    os.unlink(whole.path)
        os.close(whole.fd)
