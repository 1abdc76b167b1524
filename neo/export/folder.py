"""The folder of an export: what readers see, and how it changes at once.

    DIR/current → snapshots/000002-…         changes by one rename
    DIR/objects → current/objects            and so for each table
    DIR/snapshots/000002-…/objects/*.parquet, …, manifest.json
    DIR/unfinished/                          the next snapshot, with its plan

A snapshot never changes: all five tables are as of its last transaction. Files that it shares with the
one before are links to the same data. No file name is used twice, so that a reader who began with a
snapshot that is gone is told so and never gets rows of another one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neo.export.errors import ExportError
from neo.export.plan import APPENDED, DERIVED, Plan

MANIFEST = "manifest.json"
#: The current snapshot and the one before it, for jobs that read that one.
KEPT = 2
#: Within the unfinished snapshot: what only its makers need.
LINKS = "_links"
RUNS = "_runs"


class Folder:
    """One process at a time may write to it: see locked()."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unfinished = path / "unfinished"
        self.snapshots = path / "snapshots"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises ExportError if another process exports to here."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ExportError(f"another neoexport writes to {str(self.path)!r}") from None
            yield

    def recover(self) -> None:
        """Finish a publication that was interrupted, and remove what was left behind."""
        self.snapshots.mkdir(exist_ok=True)
        names = sorted(path.name for path in self.snapshots.iterdir())
        if names:
            self._switch(names[-1])
        for leftover in self.path.glob(".*.removed"):
            shutil.rmtree(leftover)
        for leftover in self.unfinished.glob("**/.*"):
            leftover.unlink()

    def current(self) -> str | None:
        """The name of the snapshot that readers see."""
        try:
            return os.path.basename(os.readlink(self.path / "current"))
        except FileNotFoundError:
            return None

    def plan_of(self, name: str) -> Plan:
        return _read(self.snapshots / name)

    def unfinished_plan(self) -> Plan | None:
        """The plan of an export that was interrupted."""
        return _read(self.unfinished) if self.unfinished.exists() else None

    def begin(self, plan: Plan) -> None:
        """Make the folder of the next snapshot, whole or not at all."""
        new = self.path / ".unfinished.removed"
        for name in (*plan.tables, LINKS, RUNS):
            (new / name).mkdir(parents=True)
        write(new / MANIFEST, plan.to_json().encode())
        new.rename(self.unfinished)
        sync(self.path)

    def discard(self) -> None:
        """Forget what was begun."""
        if self.unfinished.exists():
            self._remove(self.unfinished)

    def publish(self, plan: Plan) -> None:
        """Let readers see the snapshot, whose files are all there."""
        for table in APPENDED if plan.previous else ():
            for file in (self.snapshots / str(plan.previous) / table).iterdir():
                link = self.unfinished / table / file.name
                if not link.exists():
                    os.link(file, link)
        for table in plan.tables:
            sync(self.unfinished / table)
        sync(self.unfinished)
        self.unfinished.rename(self.snapshots / plan.name)
        sync(self.snapshots)
        self._switch(plan.name)

    def _switch(self, name: str) -> None:
        tables = self.plan_of(name).tables
        _link(self.path / "current", f"snapshots/{name}")
        for aid in (LINKS, RUNS):
            shutil.rmtree(self.snapshots / name / aid, ignore_errors=True)
        for table in (*APPENDED, *DERIVED):
            if table in tables:
                _link(self.path / table, f"current/{table}")
            else:
                (self.path / table).unlink(missing_ok=True)
        sync(self.path)
        for old in sorted(path.name for path in self.snapshots.iterdir())[:-KEPT]:
            self._remove(self.snapshots / old)

    def _remove(self, path: Path) -> None:
        """At once for those who look, whenever it is interrupted."""
        removed = self.path / f".{path.name}.removed"
        path.rename(removed)
        shutil.rmtree(removed)


def _read(folder: Path) -> Plan:
    path = folder / MANIFEST
    try:
        return Plan.from_json(path.read_text())
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise ExportError(
            f"{str(path)!r} is no manifest of an export ({e}); choose an empty folder"
        ) from None


def _link(path: Path, target: str) -> None:
    if path.is_symlink() and os.readlink(path) == target:
        return
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(path)


def sync(path: Path) -> None:
    """Bytes of a file, or entries of a folder, on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def finished(path: Path) -> Iterator[Path]:
    """A temporary name to write to; afterwards the bytes are on disk, and then the file has its name.

    The name is on disk when the folder is: until then a loss of power may take it away again.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    yield temporary
    sync(temporary)
    temporary.rename(path)


def write(path: Path, data: bytes) -> None:
    """Replace a small file, whole or not at all."""
    with finished(path) as temporary:
        temporary.write_bytes(data)
    sync(path.parent)
