"""Rows that wait in the middle of a job, so that a test can do something meanwhile; and the processes
of such a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from tests.support.patience import wait_until


class Gate:
    """For ``mapInArrow``: passes batches on. While the file ``closed`` is in the folder, whoever comes
    with a first batch says so in ``waiting`` and waits; not before the file ``after`` exists."""

    def __init__(self, folder: Path, after: str = "") -> None:
        self.folder = folder
        self._after = folder / after

    def close(self) -> None:
        (self.folder / "closed").touch()

    def open(self) -> None:
        (self.folder / "closed").unlink()

    def wait_for_somebody(self, check: Callable[[], object] = lambda: None) -> None:
        """Wait until a task waits at the gate. ``check`` raises if none can come."""

        def is_there() -> bool:
            check()
            return (self.folder / "waiting").exists()

        wait_until(is_there, "a task at the gate")

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self._after.exists():
                (self.folder / "waiting").touch()
                wait_until(lambda: not (self.folder / "closed").exists(), "the gate")
            yield batch


def descendants(pid: int) -> Iterator[int]:
    """Processes that this one started, and those that they started, before their parents."""
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from descendants(int(child))
                yield int(child)
    except (FileNotFoundError, ProcessLookupError):
        return  # it has ended


def workers_of_python(pid: int) -> list[int]:
    """The workers of the Spark session whose JVM has this process id."""
    daemons = [p for p in descendants(pid) if b"pyspark.daemon" in _command(p)]
    return [worker for daemon in daemons for worker in descendants(daemon)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""  # it has ended
