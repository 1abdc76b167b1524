"""Whole parts become contents, many at a time (specification 26.27).

Theory of operation
-------------------
One thread takes all parts that wait, as a *group*, and goes through the steps of a content with all of
them: each file is synced, each is renamed, each folder that got a name is synced, the results are told.
While a group is synced, the next one comes: the slower the disk is, the larger are the groups. Several
threads make the syncs of a step, and the bytes were handed to the disk before: so a file system with a
journal writes it a few times for a group, and not twice for each content.

Each file and each folder has a sync of its own, whose error is that of this file or folder. One syncfs(2)
instead, measured with groups of 64 files of 10 KiB, took 0.7 to 0.9 times as long on ext4 without a
journal, and 0.8 to 2 times with one. It would sync what other programs write, too, and whether it tells
all errors, and syncs names, depends on the kernel and the file system.

Bounds: a group has at most GROUP_MAX contents, and so many more wait. Their files are open.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Lock, Thread
from typing import TypeVar

from neo.storage.blobs.disk import Done

T = TypeVar("T")

#: Contents of a group: so many share their syncs that each one costs little.
GROUP_MAX = 64
#: Threads that sync. More of them were not faster.
SYNCS = 4


@dataclass(eq=False, slots=True)
class Whole:
    """A whole part. ``file``: of the content that it becomes. ``lock``: held while this name comes or
    goes. ``synced``: whether its bytes are."""

    fd: int
    path: Path
    file: Path
    lock: Lock
    synced: bool
    done: Done
    error: OSError | None = None
    ended: Event = field(default_factory=Event)


class Keeper:
    """``tell``: is given the results of a group, in a thread of the keeper."""

    def __init__(self, name: str, tell: Callable[[list[Whole]], None]) -> None:
        self._tell = tell
        self._calls: Queue[Whole | None] = Queue(GROUP_MAX)
        self._pool = ThreadPoolExecutor(SYNCS, f"{name} sync")
        self._thread = Thread(target=self._run, name=f"{name} keep", daemon=True)
        self._thread.start()

    def keep(self, whole: Whole) -> None:
        """Make a content of a part, which is the keeper's from now on. Wait for room in the queue."""
        self._calls.put(whole)

    def stop(self) -> None:
        """Wait for the contents that were kept until now."""
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
        """Make contents of parts. Nothing is told before all of it is durable, or has failed."""
        self._each(_sync_file, [whole for whole in group if not whole.synced])
        folders: dict[Path, list[Whole]] = {}
        for whole in group:
            if whole.error is None and _rename(whole):
                folders.setdefault(whole.file.parent, []).append(whole)
        self._each(_sync_folder_of, list(folders.values()))
        for whole in group:
            os.close(whole.fd)
            if whole.error is not None:
                with suppress(OSError):
                    whole.path.unlink(missing_ok=True)
        self._tell(group)

    def _each(self, call: Callable[[T], None], items: list[T]) -> None:
        """Make a call with each item, in several threads."""

        def several(first: int) -> None:
            for item in items[first::SYNCS]:
                call(item)

        if len(items) == 1:
            call(items[0])
        else:
            list(self._pool.map(several, range(min(SYNCS, len(items)))))


def _sync_file(whole: Whole) -> None:
    try:
        os.fsync(whole.fd)
    except OSError as e:
        whole.error = e


def _rename(whole: Whole) -> bool:
    try:
        with whole.lock:
            os.replace(whole.path, whole.file)
    except OSError as e:
        whole.error = e
    return whole.error is None


def _sync_folder_of(wholes: list[Whole]) -> None:
    """Sync a folder that got these names. After an error they may be there after a crash, or not: no row
    refers to them, so that they are removed, or belong to rows that had equal contents before."""
    try:
        sync_folder(wholes[0].file.parent)
    except OSError as e:
        for whole in wholes:
            whole.error = e


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
