"""The folder of contents, as the core of a storage node sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from neo.archive.room import Disk
from neo.protocol.blobs import Content

#: Called with None, or what went wrong.
Done = Callable[[Exception | None], None]
#: Begins the names of parts of fetches, which are resumed.
FETCH = "fetch-"
#: The folder divides its files by the first byte of their checksum.
BUCKETS = 256


class ContentMismatch(Exception):
    """A part or a file is not the content that it should be; the message says how it differs."""


class ContentDisk(Protocol):
    """Files of contents, and *parts*: files that are being received.

    All methods are called on the loop's thread; all but the first three return at once.
    Callbacks run on the loop's thread, later, and not after :meth:`close`. Their errors are OSError,
    which name the file, and ContentMismatch. Calls for one part, and for one checksum, take effect in
    their order; others may overlap.
    """

    def condemn(self) -> None:
        """Mark a folder whose database is erased next: :meth:`open` deletes all that is in it, if the
        database has no identity then, and else the mark. So a process that dies in between leaves no
        folder that belongs to nothing. Call it while the folder is closed. Raise BackendFailure."""

    def open(self, identity: str | None, needed: bool = True) -> str:
        """Lock the folder, create it if it is missing, and delete the parts of uploads. Return its
        identity, which the database keeps: random, chosen when the folder is created.

        ``identity``: the one in the database, None if there is none yet. ``needed``: whether the
        database has contents; else it accepts the identity of any folder without contents. Raise
        BackendFailure if the folder belongs to another database, is in use, or cannot be used.
        """

    def close(self) -> None:
        """Wait for calls in progress, and release the folder. Idempotent."""

    def append(self, part: str, offset: int, data: bytes, done: Done) -> None:
        """Write at the end of a part, which has ``offset`` bytes; 0 creates it, or begins it anew. The
        checksum is computed on the way, outside of the loop."""

    def resume(self, part: str, done: Callable[[int | Exception], None]) -> None:
        """Find the part of an interrupted fetch: ``done`` gets its length, 0 if there is none."""

    def fetched(self, done: Callable[[list[str] | Exception], None]) -> None:
        """List the parts of fetches."""

    def keep(self, part: str, content: Content, done: Done) -> None:
        """Make a part durable, data and name, as the file of a content. ContentMismatch if it is another
        one. After any error the part is deleted: what a failed sync did not write, a later one would not
        write either, and succeed."""

    def store(self, data: bytes, content: Content, lost: bool, done: Done) -> None:
        """Make a content durable, data and name, of which all bytes are here. ContentMismatch if they are
        another one. Contents that are stored at the same time share steps (specification 26.27).

        ``lost``: whether rows refer to the content without a file, so that its name must not have a file
        that is not complete."""

    def drop(self, part: str) -> None:
        """Delete a part, if there is one."""

    def read(
        self, checksum: bytes, offset: int, length: int, done: Callable[[bytes | Exception], None]
    ) -> None:
        """Read from the file of a content; less than ``length`` bytes at its end. FileNotFoundError if
        there is none."""

    def verify(self, content: Content, done: Done) -> None:
        """Compare the whole file of a content with its size and checksum; FileNotFoundError,
        ContentMismatch."""

    def remove(self, checksum: bytes, done: Done) -> None:
        """Delete the file of a content, if there is one."""

    def names(self, bucket: int, done: Callable[[list[bytes] | Exception], None]) -> None:
        """List the checksums of a bucket's files, ascending. Each ``bucket`` is below BUCKETS."""

    def file(self, checksum: bytes) -> Path | None:
        """Return where the file of a content is, for those that read it in a thread of their own; None if
        contents are not in files."""

    def room(self) -> Disk | None:
        """Return the disk of the folder; None if it is gone."""
