"""The command line of ``neomigrate``.

Exit codes: 0 done (and equal), 1 impossible, different or incomplete, 2 wrong options, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from ZODB.POSException import POSError

from neo.migrate.comparing import Difference, compare
from neo.migrate.copying import copied_records, copy_from, starting_point
from neo.migrate.datafs import DataFile, listed
from neo.migrate.errors import MigrateError
from neo.migrate.listing import last_tid, transactions, whole
from neo.migrate.opening import open_destination, open_source
from neo.migrate.watching import Warned, watched
from neo.protocol.ids import ZERO_TID, time_from_tid

#: The comparison ends after this number of differences.
SHOWN_DIFFERENCES = 10
MEGABYTE = 1e6
INTERRUPTED = 130


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="neomigrate",
        description="Copy a ZODB storage with its whole history, into NEO, out of NEO, or "
        "between any others. An interrupted copy is resumed by the same command.",
        epilog="SOURCE and DESTINATION: the path of a FileStorage (*.fs), a URI such as "
        "neo://name@host:port, or the name of a section of the --config file.",
    )
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("destination", metavar="DESTINATION")
    parser.add_argument("--config", type=Path, metavar="FILE", help="ZConfig file of storages")
    parser.add_argument(
        "--verify", action="store_true", help="then compare every transaction and record"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="write nothing: say what would be copied (with --verify: only compare)",
    )
    parser.add_argument(
        "--salvage",
        action="store_true",
        help="of a damaged FileStorage, copy what can be read on both sides of the damage, list what is "
        "lost, and exit with 1",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the copy; return the exit code."""
    options = _arguments(argv)
    console = Console(stderr=True, highlight=False, quiet=options.quiet)
    with watched() as warned:
        code = _run(options, console, warned)
    return max(code, report_warned(warned, "neomigrate"))


def _run(options: argparse.Namespace, console: Console, warned: Warned) -> int:
    try:
        return _migrate(options, console, warned)
    except (MigrateError, POSError, OSError) as e:
        print(f"neomigrate: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("neomigrate: interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED


def report_warned(warned: Warned, program: str) -> int:
    """Print warnings of storages; return 1 if the copy may lack data."""
    for line in warned.lines:
        print(f"{program}: warning: {line}", file=sys.stderr)
    if warned.total > len(warned.lines):
        print(f"{program}: and {warned.total - len(warned.lines)} warnings more", file=sys.stderr)
    return 1 if warned.count else 0


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


def _migrate(options: argparse.Namespace, console: Console, warned: Warned) -> int:
    with _checking(console) as report:
        source = open_source(options.source, options.config, options.salvage, report)
    with closing(source):
        # A FileStorage truncates the last transaction of an interrupted copy, which is copied again.
        with warned.uncounted():
            destination = open_destination(options.destination, options.config, options.dry_run)
        code = _copy_and_compare(options, source, destination, console)
        return max(code, report_source(source, "neomigrate"))


def _copy_and_compare(
    options: argparse.Namespace, source: Any, destination: Any | None, console: Console
) -> int:
    if destination is None:
        return _foresee(source, starting_point(source, None), console)
    with closing(destination):
        if options.dry_run and options.verify:
            return _verify(source, destination, console)
        start = starting_point(source, destination)
        if options.dry_run:
            return _foresee(source, start, console)
        _copy(source, destination, start, console)
        return _verify(source, destination, console) if options.verify else 0


# -- copy, dry run, verification -----------------------------------------------------------------


def _copy(source: Any, destination: Any, start: bytes | None, console: Console) -> None:
    if start is None:
        print("The destination has every transaction of the source already.")
        return
    if start != ZERO_TID:
        print(f"Going on at transaction 0x{start.hex()}; what is before was copied already.")
    count = records = size = 0
    with _bar(console, "copying", source, start) as bar:
        with closing(copy_from(start, source, destination)) as steps:
            for copied in steps:
                count += 1
                records += copied.records
                size += copied.size
                bar(copied.tid, count, size)
    print(f"Copied {count:,} transactions, {records:,} records, {size:,} bytes.")


def _foresee(source: Any, start: bytes | None, console: Console) -> int:
    count = records = size = 0
    if start is not None:
        with _bar(console, "reading", source, start) as bar:
            for transaction in whole(source, start):
                count += 1
                for record in copied_records(transaction):
                    records += 1
                    size += len(record.data or b"")
                bar(transaction.tid, count, size)
    print(f"Would copy {count:,} transactions, {records:,} records, {size:,} bytes.")
    return 0


def _verify(source: Any, destination: Any, console: Console) -> int:
    shown: list[Difference] = []
    count = 0
    with _bar(console, "verifying", source, ZERO_TID) as bar:
        with closing(compare(source, destination)) as steps:
            for tid, found in steps:
                count += 1
                bar(tid, count, 0)
                shown += found[: SHOWN_DIFFERENCES - len(shown)]
                if len(shown) == SHOWN_DIFFERENCES:
                    break
    if not shown:
        print(f"Verified {count:,} transactions: source and destination are equal.")
        return 0
    _report(shown)
    return 1


def _report(shown: Iterable[Difference]) -> None:
    for difference in shown:
        print(f"neomigrate: different: {difference}", file=sys.stderr)


# -- progress ------------------------------------------------------------------------------------


class _Bar:
    """Progress by the times of transactions, because their number is unknown."""

    def __init__(self, progress: Progress, task: TaskID, first: float) -> None:
        self._progress = progress
        self._task = task
        self._first = first

    def __call__(self, tid: bytes, count: int, size: int) -> None:
        seconds = self._progress.tasks[self._task].elapsed or 1.0
        self._progress.update(
            self._task,
            completed=time_from_tid(tid) - self._first,
            count=f"{count:,}",
            size=f"{size / MEGABYTE:,.1f} MB",
            rate=f"{size / MEGABYTE / seconds:,.1f} MB/s, {count / seconds:,.0f}/s",
        )


@contextmanager
def _checking(console: Console) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the file of a big FileStorage is checked before the copy."""
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


@contextmanager
def _bar(console: Console, what: str, source: Any, start: bytes) -> Iterator[_Bar]:
    with closing(transactions(source, start)) as found:
        first = next((transaction.tid for transaction in found), start)
    begin, end = time_from_tid(first), time_from_tid(max(last_tid(source), first))
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[count]} transactions"),
        TextColumn("{task.fields[size]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
    )
    with progress:
        # A source of one moment is done when that moment is.
        total = max(end - begin, 1e-9)
        task = progress.add_task(what, total=total, count="0", size="0.0 MB", rate="")
        yield _Bar(progress, task, begin)
        progress.update(task, completed=total)
