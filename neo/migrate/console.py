"""Exit codes, messages and progress of the commands that copy a storage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from neo.migrate.blobs import Blobs
from neo.migrate.copying import Copied
from neo.migrate.datafs import DataFile, listed
from neo.migrate.watching import Warned, watched
from neo.protocol.words import counted

INTERRUPTED = 130
MEGABYTE = 1e6


def run(
    program: str, copy: Callable[[Warned], int], failures: tuple[type[Exception], ...]
) -> int:
    """Run a copy. Print failures and warnings of storages; return the exit code."""
    with watched() as warned:
        try:
            code = copy(warned)
        except failures as e:
            print(f"{program}: {e}", file=sys.stderr)
            code = 1
        except KeyboardInterrupt:
            print(f"{program}: interrupted; the same command goes on from here", file=sys.stderr)
            code = INTERRUPTED
    for line in warned.lines:
        print(f"{program}: warning: {line}", file=sys.stderr)
    if warned.total > len(warned.lines):
        print(f"{program}: and {warned.total - len(warned.lines)} warnings more", file=sys.stderr)
    # After a warning the copy may lack data.
    return max(code, 1 if warned.count else 0)


def report_source(source: Any, program: str) -> int:
    """Print defects of a source that is read nevertheless; return 1 if the copy may lack data."""
    if not isinstance(source, DataFile):
        return 0
    if source.unfinished is not None:
        print(f"{program}: {source.getName()!r}: {source.unfinished}", file=sys.stderr)
    for problem in source.problems:
        print(f"{program}: {problem}", file=sys.stderr)
    if source.gaps:
        print(
            f"{program}: {source.getName()!r} is damaged, the copy is not complete; lost are\n"
            f"{listed(source.gaps)}",
            file=sys.stderr,
        )
    return 1 if source.gaps or source.problems else 0


class Sums:
    """What was copied, or would be. ``blobs``: counts contents."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.transactions = self.records = self.size = 0

    def add(self, copied: Copied) -> None:
        self.transactions += 1
        self.records += copied.records
        self.size += copied.size

    @property
    def total(self) -> int:
        """Return the bytes of records and contents."""
        return self.size + self._blobs.size

    def __str__(self) -> str:
        transactions, records = counted(self.transactions, "transaction"), counted(self.records, "record")
        text = f"{transactions}, {records}, {self.size:,} bytes"
        if not self._blobs.count:
            return text
        return f"{text}; {counted(self._blobs.count, 'blob')}, {self._blobs.size:,} bytes"


class Bar:
    """A progress bar with a count, bytes and rates. ``total``: the last place, in the unit of places."""

    def __init__(self, console: Console, what: str, unit: str, total: float) -> None:
        self._unit = unit
        # The transactions of a source may all have the same time.
        self._total = max(total, 1e-9)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task(what, total=self._total, text="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, error: object, *details: object) -> None:
        if error is None:
            self._progress.update(self._task, completed=self._total)
        self._progress.stop()

    def update(self, place: float, count: int, size: int, blobs: int = 0) -> None:
        seconds = self._progress.tasks[0].elapsed or 1.0
        megabytes = size / MEGABYTE
        text = f"{count:,} {self._unit}  "
        text += f"{counted(blobs, 'blob')}  " if blobs else ""
        text += f"{megabytes:,.1f} MB"
        rate = f"{megabytes / seconds:,.1f} MB/s, {count / seconds:,.0f}/s"
        self._progress.update(self._task, completed=place, text=f"{text}  {rate}")


@contextmanager
def checking(console: Console) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows position and size while the file of a big FileStorage is checked."""
    progress = Progress(
        TextColumn("checking"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with ExitStack() as stack:

        def report(position: int, size: int) -> None:
            if not progress.tasks:
                stack.enter_context(progress)
                progress.add_task("")
            progress.update(progress.task_ids[0], completed=position, total=size)

        yield report
