"""Detect deleted or replaced files of a SQLite database.

An operator may delete them while a node has them open. The system would write to the deleted files,
and the data would be lost when the process ends.
"""

from __future__ import annotations

import os

from neo.storage.backend.api import FILL_ANEW, DatabaseGone

#: By suffix of the name.
_ADVICE = {
    "": f"Put the right file back and start the node. {FILL_ANEW}",
    # SQLite still reads its open log, and copies it into the database when the node ends.
    "-wal": "Nothing is lost if the database itself was left alone: start the node",
}


class Files:
    """The identities of a database and its log when they were opened. Thread-safe."""

    def __init__(self, path: str) -> None:
        """Note the identities of both files, which exist. Raise OSError."""
        self._path = path
        self._known = {suffix: os.stat(path + suffix) for suffix in _ADVICE}

    def check(self) -> None:
        """Raise DatabaseGone if a name leads to another file or none. Takes some microseconds."""
        for suffix, known in self._known.items():
            what = "is another file than the one in use"
            try:
                if os.path.samestat(os.stat(self._path + suffix), known):
                    continue
            except FileNotFoundError:
                what = "is gone"
            raise DatabaseGone(
                f"{self._path}{suffix} {what}: it was deleted, moved or replaced while this node ran."
                f" Nothing was acknowledged since. {_ADVICE[suffix]}"
            )
