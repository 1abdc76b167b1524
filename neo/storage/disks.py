"""The disks of a storage node, and what it keeps on them (specification 17.36)."""

from __future__ import annotations

from neo import __version__
from neo.archive.room import Disk
from neo.protocol.packets import AnswerDisks
from neo.storage.blobs.contents import Contents
from neo.storage.database import Database

#: Names of what is on a disk.
DATABASE, CONTENTS = "database", "contents of blobs"
#: The size of the database is asked for again after this time, because MariaDB needs some time for it.
GOOD_SECONDS = 60.0


class Disks:
    """All methods run on the loop's thread."""

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._size = 0
        self._until: float | None = None

    def found(self) -> list[tuple[str, Disk]]:
        """Return what is on each disk: of contents only if they have one of their own."""
        database, contents = self._database.backend.engine.disk(), self._contents.room()
        if database is not None and contents is not None and database.name == contents.name:
            contents = None
        disks = (DATABASE, database), (CONTENTS, contents)
        return [(what, disk) for what, disk in disks if disk is not None]

    def describe(self) -> AnswerDisks:
        """Return the disks now; the bytes of the database may be a minute old. Raise BackendFailure."""
        now = self._database.monotonic()
        if self._until is None or now >= self._until:
            backend = self._database.backend
            self._size = backend.engine.size() + backend.blobs.content_totals()[1]
            self._until = now + GOOD_SECONDS
        rows = [(what, disk.free, disk.total) for what, disk in self.found()]
        return AnswerDisks(__version__, self._size, rows)
