"""The folder of an export: the snapshots that readers see, and their atomic replacement.

    DIR/current → snapshots/000002-…         changes by one rename
    DIR/objects → current/objects            and so for each table
    DIR/snapshots/000002-…/objects/*.parquet, …, manifest.json
    DIR/unfinished/                          the next snapshot, with its plan

A snapshot is immutable: all five tables are as of its last transaction. Files that it shares with the
previous one are hard links. No file name is used twice. So a reader of a deleted snapshot gets an error
and never rows of another snapshot.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import DecodeError

from neo.export.plan import APPENDED, DERIVED, ExportError, Plan

MANIFEST = "manifest.json"
#: Keep the previous snapshot too, for jobs that are reading it.
KEPT = 2
#: Folders of temporary files in the unfinished snapshot.
LINKS = "_links"
RUNS = "_runs"


class Folder:
    """A folder that one process at a time writes to: see locked()."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unfinished = path / "unfinished"
        self.snapshots = path / "snapshots"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder. Raise ExportError if another process exports to it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ExportError(
                    f"another neoexport writes to {str(self.path)!r}: wait for its end"
                ) from None
            yield

    def recover(self) -> None:
        """Finish an interrupted publication, and remove leftovers."""
        self.snapshots.mkdir(exist_ok=True)
        names = sorted(path.name for path in self.snapshots.iterdir())
        if names:
            self._switch(names[-1])
        for leftover in self.path.glob(".*.removed"):
            shutil.rmtree(leftover)
        for leftover in self.unfinished.glob("**/.*"):
            leftover.unlink()

    def current(self) -> str | None:
        """Return the name of the snapshot that readers see."""
        try:
            return os.path.basename(os.readlink(self.path / "current"))
        except FileNotFoundError:
            return None

    def plan_of(self, name: str) -> Plan:
        return _read(self.snapshots / name)

    def unfinished_plan(self) -> Plan | None:
        """Return the plan of an interrupted export."""
        return _read(self.unfinished) if self.unfinished.exists() else None

    def begin(self, plan: Plan) -> None:
        """Make the folder of the next snapshot, atomically."""
        new = self.path / ".unfinished.removed"
        for name in (*plan.tables, LINKS, RUNS):
            (new / name).mkdir(parents=True)
        write(new / MANIFEST, plan.to_json())
        new.rename(self.unfinished)
        sync(self.path)

    def discard(self) -> None:
        """Remove the unfinished snapshot."""
        if self.unfinished.exists():
            self._remove(self.unfinished)

    def publish(self, plan: Plan) -> None:
        """Make the complete snapshot visible to readers."""
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
        """Remove a folder; readers lose it atomically, even if this is interrupted."""
        removed = self.path / f".{path.name}.removed"
        path.rename(removed)
        shutil.rmtree(removed)


def _read(folder: Path) -> Plan:
    path = folder / MANIFEST
    try:
        return Plan.from_json(path.read_bytes())
    except (OSError, DecodeError) as e:
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
    """Sync the bytes of a file, or the entries of a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def finished(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to; then sync the file and rename it.

    The new name is durable when the folder is synced.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    yield temporary
    sync(temporary)
    temporary.rename(path)


def write(path: Path, data: bytes) -> None:
    """Replace a small file atomically."""
    with finished(path) as temporary:
        temporary.write_bytes(data)
    sync(path.parent)
