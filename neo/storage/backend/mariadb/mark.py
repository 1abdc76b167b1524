"""The mark of a MariaDB database: checked when the database is opened, moved on after group commits.

The process always remembers it, so that a server that comes back without what was acknowledged is found
when the backend is opened again. With a file, the mark survives the process.
"""

from __future__ import annotations

from time import monotonic

from neo.storage.backend.acknowledged import (
    Acknowledged,
    Mark,
    Position,
    compare,
    from_row,
    next_position,
)
from neo.storage.backend.api import BackendFailure
from neo.storage.backend.files import sync_folder

#: Seconds of a generation: the first group commit after them begins another one, which costs 50 us more.
#: Single commits may follow each other twenty times as fast. A database that lost less than the end of a
#: generation is not found to be behind.
GENERATION_SECONDS = 0.01

#: Seconds after which the next generation syncs the file: it costs one sync more, and after a power cut
#: the file proves nothing about what was committed since. The system would write it within about 30.
SYNC_SECONDS = 10.0


class MariaDBMark:
    """``acknowledged``: by this process. ``path``: of the file; None: the process alone remembers."""

    def __init__(self, name: str, acknowledged: Acknowledged, path: str | None) -> None:
        self._name = name
        self._acknowledged = acknowledged
        self._file = None if path is None else Mark(path)
        self._position = Position("", 0)
        self._next_at = 0.0
        self._sync_at = 0.0

    # -- on the loop's thread, while the writer's thread does not run -----------------------------------

    def examine(self, row: str | None, empty: bool, reset: bool) -> str | None:
        """Return the row to write into a database that has ``row``, if it needs one. ``empty``: it has
        nothing at all. ``reset``: it was erased.

        Raises WentBack, OSError.
        """
        # Whatever a database lost that is opened, its next commit must not have a generation from before.
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
            " database, as 'A database is lost' in docs/operating.md says. If not: put back the right"
            " database, or restore all nodes from one backup. To serve what is here, and lose the rest:"
            f" stop this process{path and f', remove {path},'} and start it again"
        )
        compare(found, promised, self._acknowledged.position, path, self._name, advice)

    def opened(self) -> None:
        """The database has the row. Raises BackendFailure, OSError."""
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
        """Return the row to write into the transaction that is committed now, if it begins a
        generation."""
        if (now := monotonic()) < self._next_at:
            return None
        self._next_at = now + GENERATION_SECONDS
        self._position = self._position._replace(generation=self._position.generation + 1)
        return self._position.row()

    def synced(self) -> None:
        """The commit that began a generation is durable. Raises OSError."""
        self._write(durable=monotonic() >= self._sync_at)
        self._acknowledged.position = self._position

    def closed(self) -> None:
        """Everything is durable, and nothing else is written. Raises OSError."""
        self._write(durable=True)

    def _write(self, durable: bool) -> None:
        if self._file is None:
            return
        self._file.write(self._position, durable)
        if durable:
            self._sync_at = monotonic() + SYNC_SECONDS
