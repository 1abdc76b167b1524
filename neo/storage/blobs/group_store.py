"""Whole contents that come in one piece become durable together (specification 26.27).

Theory of operation
-------------------
One thread takes all contents that wait, writes their files, gives them their names, and makes all of them
durable with one sync of the file system: data and names. So while one group is synced, the next one
comes, and the slower the disk is, the larger are the groups.

A content gets its name before its bytes are durable only if it is *new*: no row refers to it, and there
is no file of this name. After a crash such a file may be torn; it has no row, because a row is written
only after the sync (specification 26.6). So nothing trusts it: the sweep deletes it, or a later upload
replaces it. The file of any other content is synced before it replaces what is there.

If the file system cannot be synced as a whole, some threads sync files and folders one by one.

Bounds: a group has at most GROUP_MAX contents, whose files are open. What waits is bounded by the windows
of the clients (:mod:`neo.storage.blobs.uploads`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Protocol

from neo.protocol.blobs import Content, content_hash
from neo.storage.blobs.disk import ContentMismatch, Done
from neo.storage.blobs.disk_calls import SharedSync, compare, explained, sync_folder, write_all

#: Contents of a group. So many share a sync that it costs each of them little, and their files are open.
GROUP_MAX = 64

#: Callbacks with their results.
Results = list[tuple[Done, OSError | ContentMismatch | None]]


class Surroundings(Protocol):
    """What the folder does for a group. Called by the thread of the groups, and by those of the folder."""

    def file(self, checksum: bytes) -> Path:
        """Return the path of a content's file."""

    def name_lock(self, checksum: bytes) -> Lock:
        """Return the lock under which a content gets its name, or loses it."""

    def aside(self, number: int, call: Callable[[], None]) -> None:
        """Have one of some threads make a call."""

    def tell(self, results: Results) -> None:
        """Have the loop call back."""


@dataclass(eq=False, slots=True)
class _Arrival:
    """A content. ``path``: of its part."""

    path: Path
    data: bytes
    content: Content
    is_new: bool
    done: Done
    fd: int = -1


class GroupStore:
    """``parts``: the folder of parts, on the disk of the contents."""

    def __init__(self, folder: Surroundings, parts: Path) -> None:
        self._folder = folder
        self._parts = parts
        self._shared = SharedSync(parts)
        self._numbers = count()
        self._calls: SimpleQueue[_Arrival | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"new contents {parts}", daemon=True)
        self._thread.start()

    def store(self, part: str, data: bytes, content: Content, is_new: bool, done: Done) -> None:
        self._calls.put(_Arrival(self._parts / part, data, content, is_new, done))

    def stop(self) -> None:
        """Wait for the contents that were stored until now."""
        self._calls.put(None)
        self._thread.join()
        self._shared.close()

    def _run(self) -> None:
        arrival = self._calls.get()
        while arrival is not None:
            group: list[_Arrival] = []
            results: Results = []
            while arrival is not None:
                self._write(arrival, group, results)
                if len(group) >= GROUP_MAX or self._calls.empty():
                    break
                arrival = self._calls.get()
            self._settle(group, results)
            if arrival is not None:
                arrival = self._calls.get()

    # -- steps -----------------------------------------------------------------------------------

    def _write(self, arrival: _Arrival, group: list[_Arrival], results: Results) -> None:
        """Write a file, and name it if that needs no sync before. Add it to the group then, its error to
        the results."""
        try:
            found = content_hash()
            found.update(arrival.data)
            compare(arrival.path.name, len(arrival.data), found, arrival.content)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            arrival.fd = os.open(arrival.path, flags, 0o600)
            write_all(arrival.fd, arrival.data)
            arrival.data = b""
            if arrival.is_new and self._name(arrival):
                group.append(arrival)
            else:
                self._aside(partial(self._replace, arrival))
        except (OSError, ContentMismatch) as e:
            self._delete(arrival)
            results.append((arrival.done, explained(e)))

    def _name(self, arrival: _Arrival) -> bool:
        """Give a file its name, unless there is one of this name. Return whether it was."""
        target = self._folder.file(arrival.content.checksum)
        with self._folder.name_lock(arrival.content.checksum):
            if target.exists():
                return False
            os.rename(arrival.path, target)
        return True

    def _settle(self, group: list[_Arrival], results: Results) -> None:
        """Make a group durable, and tell the results. Nothing is told before."""
        if group and self._shared.sync():
            for arrival in group:
                os.close(arrival.fd)
                results.append((arrival.done, None))
        elif len(group) == 1:
            results.append((group[0].done, self._sync_one(group[0])))
        else:
            for arrival in group:
                self._aside(partial(self._sync_aside, arrival))
        if results:
            self._folder.tell(results)

    def _aside(self, call: Callable[[], None]) -> None:
        self._folder.aside(next(self._numbers), call)

    # -- files that are synced one by one ----------------------------------------------------------

    def _sync_aside(self, arrival: _Arrival) -> None:
        self._folder.tell([(arrival.done, self._sync_one(arrival))])

    def _sync_one(self, arrival: _Arrival) -> OSError | ContentMismatch | None:
        """Make a content durable that has its name. Return the error."""
        target = self._folder.file(arrival.content.checksum)
        try:
            os.fsync(arrival.fd)
            sync_folder(target.parent)
        except OSError as e:
            with self._folder.name_lock(arrival.content.checksum), suppress(OSError):
                if _is_file(target, arrival.fd):  # and not that of an equal content
                    target.unlink()
            self._delete(arrival)
            return explained(e)
        os.close(arrival.fd)
        return None

    def _replace(self, arrival: _Arrival) -> None:
        """Make a content durable that may be here already."""
        target = self._folder.file(arrival.content.checksum)
        error: OSError | ContentMismatch | None = None
        try:
            os.fsync(arrival.fd)
            with self._folder.name_lock(arrival.content.checksum):
                os.replace(arrival.path, target)
            sync_folder(target.parent)
        except OSError as e:
            error = explained(e)
            self._delete(arrival)
        else:
            os.close(arrival.fd)
        self._folder.tell([(arrival.done, error)])

    def _delete(self, arrival: _Arrival) -> None:
        """Close a file that is given up, and delete its part."""
        if arrival.fd >= 0:
            os.close(arrival.fd)
        with suppress(OSError):
            arrival.path.unlink(missing_ok=True)


def _is_file(path: Path, fd: int) -> bool:
    """Return whether a name is that of an open file."""
    found, wanted = os.stat(path), os.fstat(fd)
    return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)
