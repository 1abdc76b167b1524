"""The acknowledged position of a MariaDB database: checked at its opening, advanced after group commits.

The process always keeps it in memory. So it detects a server that restarted without acknowledged
transactions when it opens the backend again. With a file, the position survives the process.
"""

from __future__ import annotations

from time import monotonic

from neo.storage.backend.acknowledged import (
    Acknowledged,
    Position,
    PositionFile,
    compare,
    from_row,
    next_position,
    sync_folder,
)
from neo.storage.backend.api import BackendFailure

#: Seconds of a generation. The first group commit after them begins the next one and takes 50 us more;
#: commits may be twenty times as frequent. A loss within the last generation is not detected.
GENERATION_SECONDS = 0.01

#: Seconds after which the next generation syncs the file, at the cost of one sync. After a power cut the
#: file proves nothing about later commits. The system would write it within about 30 seconds.
SYNC_SECONDS = 10.0


class MariaDBPosition:
    """Advances the position. ``acknowledged``: of this process. ``path``: None to keep it in memory."""

    def __init__(self, name: str, acknowledged: Acknowledged, path: str | None) -> None:
        self._name = name
        self._acknowledged = acknowledged
        self._file = None if path is None else PositionFile(path)
        self._position = Position("", 0)
        self._next_at = 0.0
        self._sync_at = 0.0

    # -- on the loop's thread, while the writer's thread does not run -----------------------------------

    def examine(self, row: str | None, empty: bool, reset: bool) -> str | None:
        """Return the row to insert into a database that has ``row``, or None if it needs none.

        ``empty``: it has no tables. ``reset``: it was erased. Raise WentBack, OSError.
        """
        # Begin a generation with the next commit, in case the database lost the last one.
        self._next_at = 0.0
        if not reset:
            self._compare(None if empty else from_row(row))
        if row is not None:
            self._position = from_row(row)
            return None
        self._position = next_position(None)
        return self._position.row()

    def _compare(self, found: Position | None) -> None:
        file = self._file
        path, promised = (file.path, file.read(self._name)) if file else ("", None)
        advice = (
            "Look at the log of the server: it lost what it had said to be on disk, or another"
            " database was restored. If replicas have the cells of this node: start it with an empty"
            " database, as 'A database is lost' in docs/maintenance.md says. If not: put back the right"
            " database, or restore all nodes from one backup. To serve what is here, and lose the rest:"
            f" stop this process{path and f', remove {path},'} and start it again"
        )
        compare(found, promised, self._acknowledged.position, path, self._name, advice)

    def opened(self) -> None:
        """Open the file; the database has the row. Raise BackendFailure, OSError."""
        if self._file is None:
            return
        try:
            self._file.open(lock=True)
        except BlockingIOError:
            raise BackendFailure(
                f"{self._name}: another process uses {self._file.path}, the file of the setting 'mark'."
                " Stop that process, or give each storage node a file of its own"
            ) from None
        self._write(durable=True)
        sync_folder(self._file.path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    # -- on the writer's thread ---------------------------------------------------------------------

    def next_row(self) -> str | None:
        """Return the row for the transaction that is committed now, if it begins a generation."""
        if (now := monotonic()) < self._next_at:
            return None
        self._next_at = now + GENERATION_SECONDS
        self._position = self._position._replace(generation=self._position.generation + 1)
        return self._position.row()

    def synced(self) -> None:
        """Advance to the generation whose first commit is durable. Raise OSError."""
        self._write(durable=monotonic() >= self._sync_at)
        self._acknowledged.position = self._position

    def closed(self) -> None:
        """Write the last position: all writes are durable and no other follows. Raise OSError."""
        self._write(durable=True)

    def _write(self, durable: bool) -> None:
        if self._file is None:
            return
        self._file.write(self._position, durable)
        if durable:
            self._sync_at = monotonic() + SYNC_SECONDS
