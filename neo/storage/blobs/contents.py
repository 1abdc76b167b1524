"""The contents on this node: what is here, what is in use, what is removed (specification 26.5 to 26.9).

Theory of operation
-------------------
A file is needed while a row of ``content`` has its checksum, or something *holds* it: a transfer or a
transaction that has no row yet. A row is written only when its content is durable here (specification
26.6): so a content with rows is here, unless its file was lost.

The backend remembers which contents may have lost their last row. Each second, those without a row and
a holder are *leaving*: as soon as the deletion of their rows is durable (else a crash would bring back a
row without its file), the files are removed. A new row of a leaving content needs a holder first, which
ends the leaving. A removal that has begun takes effect before a later ``keep`` of the same checksum,
because the disk keeps their order.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from neo.archive.room import Disk
from neo.node.peer import Peer
from neo.protocol.blobs import CHECKSUM_BYTES, PIECE_BYTES, SIZE_MAX, Content
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import AnswerBlob, AskBlob, NotifyBlobDamaged
from neo.storage.backend.api import Backend, BackendFailure
from neo.storage.blobs.disk import ContentDisk, Done
from neo.storage.database import Database
from neo.storage.events import Part

T = TypeVar("T")

logger = logging.getLogger("neo.storage")

#: Row of ``config`` with the identity of the folder.
IDENTITY = "_blobs"
#: Period in which freed contents are looked for.
COLLECT_SECONDS = 1.0
#: Lost contents of which this node remembers that they are lost. The next sweep finds the others.
LOST_MAX = 10_000
#: Reported contents that are verified at a time.
VERIFY_MAX = 8

_NO_ROOM = errno.ENOSPC, errno.EDQUOT

NO_FOLDER = "this storage node has no folder for contents of blobs: set blob_dir, and start it again"


def open_disk(disk: ContentDisk | None, backend: Backend) -> None:
    """Open the folder that belongs to an open database (specification 26.7). Raise BackendFailure if the
    folder is of another database, cannot be used, or is needed and not given."""
    identity = backend.tables.get_config(IDENTITY)
    needed = identity is not None and bool(backend.blobs.contents(b"", 1))
    if disk is None:
        if needed:
            raise BackendFailure(
                "the database has contents of blobs, which are in a folder: set blob_dir to this folder"
            )
    elif (found := disk.open(identity, needed)) != identity:
        backend.tables.set_config(IDENTITY, found)


class Contents(Part):
    """Which contents are on this node. All methods run on the loop's thread."""

    def __init__(self, database: Database, disk: ContentDisk | None) -> None:
        """``disk``: open; None if this node has no folder."""
        self._database = database
        self._rows = database.backend.blobs
        self._engine = database.backend.engine
        self._disk = disk
        self._holds: Counter[bytes] = Counter()
        #: Held contents that were kept: they may have no row yet.
        self._kept: set[bytes] = set()
        #: Contents that lost a holder since the last collection.
        self._released: set[bytes] = set()
        self._leaving: set[bytes] = set()
        #: Contents with rows, whose file is not here or damaged, with an object that has each.
        self.lost: dict[bytes, tuple[Content, bytes]] = {}
        #: Lost contents that no node has of those that can be asked.
        self.nowhere: set[bytes] = set()
        #: When there was no room for a content the last time, as :meth:`Database.monotonic`.
        self.refused_at: float | None = None
        self._verifying: set[bytes] = set()
        self._operation: object | None = None
        #: Whether the database durably knows the folder: a crash must not leave contents in a folder of
        #: which the database knows nothing.
        self._bound = False
        self._when_bound: list[Callable[[], None]] = []
        if disk is not None:
            self._engine.stored(database.guard(self._now_bound))
        #: Called when too many contents were freed to remember them.
        self.sweep: Callable[[], None] = lambda: None
        #: Called when a content was lost.
        self.on_lost: Callable[[], None] = lambda: None

    def _now_bound(self) -> None:
        self._bound = True
        waiting, self._when_bound = self._when_bound, []
        for call in waiting:
            call()

    @property
    def enabled(self) -> bool:
        """Whether this node has a folder."""
        return self._disk is not None

    @property
    def disk(self) -> ContentDisk:
        """The folder. Call only if :attr:`enabled`."""
        assert self._disk is not None
        return self._disk

    def room(self) -> Disk | None:
        """Return the disk of the folder; None without a folder, or if its disk is gone."""
        return None if self._disk is None else self._disk.room()

    # -- what is here ------------------------------------------------------------------------------

    def has(self, checksum: bytes) -> bool:
        """Return whether a content is durable here: a row that refers to it may be written."""
        if self._disk is None:
            return False
        if checksum in self._kept:
            return True
        return checksum not in self.lost and self._rows.has_content(checksum)

    def find(self, checksum: bytes) -> Content | None:
        """Return the content of rows with this checksum, None if there is none."""
        before = int.from_bytes(checksum, "big") - 1
        after = before.to_bytes(CHECKSUM_BYTES, "big") if before >= 0 else b""
        found = self._rows.contents(after, 1)
        return found[0] if found and found[0].checksum == checksum else None

    def missing(self, content: Content, oid: bytes) -> None:
        """Note that a content with rows is not here, or damaged: until it is kept again, rows that refer
        to it need it from elsewhere. ``oid``: an object that has it."""
        if len(self.lost) < LOST_MAX:
            self.lost[content.checksum] = content, oid
            self.on_lost()

    def intact(self, checksum: bytes) -> None:
        """Note that the file of a content matches its checksum: an operator may have restored it."""
        self._found(checksum)

    def _found(self, checksum: bytes) -> None:
        self.lost.pop(checksum, None)
        self.nowhere.discard(checksum)

    def not_written(self, error: Exception) -> None:
        """Note why a content could not be written, if that is of interest to operators."""
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            self.refused_at = self._database.monotonic()

    # -- holders -----------------------------------------------------------------------------------

    def hold(self, checksum: bytes) -> None:
        """Do not remove this content, which may be here or not, until :meth:`release`. Holds are
        counted."""
        self._holds[checksum] += 1
        self._leaving.discard(checksum)

    def release(self, checksum: bytes) -> None:
        """End a hold. After the last one the file is removed, unless a row refers to it."""
        self._holds[checksum] -= 1
        if not self._holds[checksum]:
            del self._holds[checksum]
            self._kept.discard(checksum)
            self._released.add(checksum)

    def held(self, checksum: bytes) -> bool:
        return checksum in self._holds

    def keep(self, part: str, content: Content, done: Done) -> None:
        """Make a part durable as a content, which the caller holds. Then :meth:`has` is true, until the
        holders are gone and no row refers to it."""
        kept = self.guard(partial(self._done, content, done))
        self._once_bound(partial(self.disk.keep, part, content, kept))

    def store(self, data: bytes, content: Content, done: Done) -> None:
        """Make a content durable that is in memory. As :meth:`keep`."""
        stored = self.guard(partial(self._done, content, done))
        lost = content.checksum in self.lost
        self._once_bound(partial(self.disk.store, data, content, lost, stored))

    def _done(self, content: Content, done: Done, error: Exception | None) -> None:
        if error is None:
            self._found(content.checksum)
            if content.checksum in self._holds:
                self._kept.add(content.checksum)
            else:
                self._released.add(content.checksum)
        done(error)

    def _once_bound(self, call: Callable[[], None]) -> None:
        if self._bound:
            call()
        else:
            self._when_bound.append(call)

    def guard(self, callback: Callable[[T], None]) -> Callable[[T], None]:
        """Wrap a callback for the disk: see :meth:`Database.guard`."""
        return lambda result: self._database.guard(lambda: callback(result))()

    # -- removal -----------------------------------------------------------------------------------

    def operation_started(self) -> None:
        if self._disk is not None:
            self._operation = operation = object()
            self._collect_later(operation)

    def operation_stopped(self) -> None:
        self._operation = None

    def _collect_later(self, operation: object) -> None:
        def tick() -> None:
            if self._operation is operation:
                self.collect()
                self._collect_later(operation)

        self._database.call_later(COLLECT_SECONDS, tick)

    def collect(self) -> None:
        """Remove the files of contents that were freed since the last call."""
        freed = self._rows.freed_contents()
        if freed is None:
            self.sweep()
            freed = set()
        deleted = bool(freed)
        freed |= self._released
        self._released = set()
        if not self.leave(sorted(freed)) and deleted:
            self._database.commit_soon()  # other rows keep the files, so that nobody waits for it

    def leave(self, checksums: list[bytes]) -> int:
        """Remove the files of those contents that nothing needs, when that is durable; return their
        number."""
        leaving = [c for c in checksums if c not in self._holds and not self._rows.has_content(c)]
        if leaving:
            self._leaving.update(leaving)
            stored = self._database.guard(lambda: self._remove(leaving))
            self._engine.stored(stored)
        return len(leaving)

    def _remove(self, checksums: list[bytes]) -> None:
        for checksum in checksums:
            if checksum in self._leaving:
                self._leaving.discard(checksum)
                self._found(checksum)
                self.disk.remove(checksum, _removed)

    # -- requests of peers -------------------------------------------------------------------------

    def serve(self, peer: Peer, message_id: int, m: AskBlob) -> None:
        """Answer AskBlob later. Raise ErrorAnswer if it cannot be answered at all."""
        if self._disk is None:
            raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, NO_FOLDER)
        if not 0 < m.length <= PIECE_BYTES or m.offset > SIZE_MAX:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR,
                f"{m.length} bytes at {m.offset} of a content are requested: 1 to {PIECE_BYTES} bytes"
                f" below {SIZE_MAX} expected",
            )

        def read(data: bytes | Exception) -> None:
            if not isinstance(data, Exception):
                peer.answer(message_id, AnswerBlob(data))
            elif isinstance(data, FileNotFoundError):
                self._not_found(m)
                text = f"object {m.oid.hex()}: content {m.checksum.hex()} is not on this node"
                peer.refuse(message_id, ErrorCode.OID_NOT_FOUND, text)
            else:
                text = f"object {m.oid.hex()}: content {m.checksum.hex()} cannot be read: {data}"
                logger.error("%s; check the disk", text)
                peer.refuse(message_id, ErrorCode.CHECKING_ERROR, text)
            peer.end_job()

        peer.begin_job()
        self._disk.read(
            m.checksum,
            m.offset,
            m.length,
            self.guard(read),
        )

    def _not_found(self, m: AskBlob) -> None:
        """Note a lost file, if a content should be here."""
        if m.checksum not in self.lost and (content := self.find(m.checksum)) is not None:
            self._log_lost(content, m.oid, "its file is missing")
            self.missing(content, m.oid)

    def reported(self, peer: Peer, m: NotifyBlobDamaged) -> None:
        """Verify a content that a peer found damaged."""
        if self._disk is None or m.checksum in self._verifying or m.checksum in self.lost:
            return
        if len(self._verifying) >= VERIFY_MAX or (content := self.find(m.checksum)) is None:
            return
        oid = m.oid

        def verified(error: Exception | None) -> None:
            self._verifying.discard(content.checksum)
            if error is None:
                logger.warning(
                    "%r received content %s of object %s damaged, but its file here is intact: look at"
                    " the network and the memory of both machines",
                    peer,
                    content,
                    oid.hex(),
                )
            else:
                self.damaged(content, error)

        self._verifying.add(content.checksum)
        self._disk.verify(content, self.guard(verified))

    def damaged(self, content: Content, error: Exception) -> None:
        """Note a content whose file is missing, or is another content, unless nothing needs it any
        more."""
        objects = self._rows.objects_with(content.checksum, 1)
        if objects and content.checksum not in self.lost:
            oid = objects[0][0]
            self._log_lost(content, oid, str(error))
            self.missing(content, oid)

    def _log_lost(self, content: Content, oid: bytes, why: str) -> None:
        logger.error(
            "content %s of object %s is lost on this node: %s; it is read from other nodes",
            content,
            oid.hex(),
            why,
        )


def _removed(error: Exception | None) -> None:
    if error is not None:
        logger.error("a content that is not needed any more could not be removed: %s", error)
