"""Translate SQLite's errors into messages that say what to do."""

from __future__ import annotations

import os
import sqlite3

from neo.storage.backend.api import BackendFailure

_ADVICE = {
    "SQLITE_FULL": "no space is left. Free space on that disk: the node goes on by itself",
    "SQLITE_READONLY": "the file or its directory is not writable. Give it to the user of this"
    " process, or mount the disk writable",
    "SQLITE_CANTOPEN": "the file cannot be opened. Its directory must exist, and the user of this"
    " process must be allowed to write there",
    "SQLITE_PERM": "access is denied. Give the file to the user of this process",
    "SQLITE_NOTADB": "the file is not a SQLite database. Give another file",
    "SQLITE_CORRUPT": "the database is damaged. Restore the file, or remove it and let the replicas"
    " of this node fill a new one",
    "SQLITE_BUSY": "another program is writing to the database. Only this node may write to it",
    "SQLITE_LOCKED": "another program is writing to the database. Only this node may write to it",
    "SQLITE_IOERR": "the disk fails or is gone. Check the disk and the system log",
}


def explain(error: Exception, path: str) -> BackendFailure:
    """Return the failure for an error of SQLite, the operating system, or the thread that syncs."""
    if isinstance(error, OSError):
        return BackendFailure(
            f"{path}: cannot make the log of the database durable: {error}. Check the disk and the"
            " system log"
        )
    if not isinstance(error, sqlite3.Error):
        return BackendFailure(f"{path}: cannot make the log of the database durable: {error!r}")
    name = getattr(error, "sqlite_errorname", None) or ""
    for prefix, advice in _ADVICE.items():
        if name.startswith(prefix):
            return BackendFailure(f"{path}: {advice} ({error}, {name})")
    if not os.path.exists(path):
        return BackendFailure(f"{path}: the file of the database is gone ({error}, {name})")
    return BackendFailure(f"{path}: the database refused a statement ({error}, {name})")
