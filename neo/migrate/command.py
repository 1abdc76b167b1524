"""The command line of ``neomigrate``.

Exit codes: 0 done (and equal), 1 impossible, different or incomplete, 2 wrong options, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from ZODB.POSException import POSError

from neo.migrate.comparing import Difference, compare
from neo.migrate.console import Bar, checking, report_source, run
from neo.migrate.copying import copied_records, copy_from, starting_point
from neo.migrate.errors import MigrateError
from neo.migrate.listing import last_tid, transactions, whole
from neo.migrate.opening import open_destination, open_source
from neo.migrate.watching import Warned
from neo.protocol.ids import ZERO_TID, time_from_tid

#: The comparison ends after this number of differences.
SHOWN_DIFFERENCES = 10


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
    failures = MigrateError, POSError, OSError
    return run("neomigrate", lambda warned: _migrate(options, console, warned), failures)


def _migrate(options: argparse.Namespace, console: Console, warned: Warned) -> int:
    with checking(console) as report:
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
    with _progress(console, "copying", source, start) as show:
        with closing(copy_from(start, source, destination)) as steps:
            for copied in steps:
                count += 1
                records += copied.records
                size += copied.size
                show(copied.tid, count, size)
    print(f"Copied {count:,} transactions, {records:,} records, {size:,} bytes.")


def _foresee(source: Any, start: bytes | None, console: Console) -> int:
    count = records = size = 0
    if start is not None:
        with _progress(console, "reading", source, start) as show:
            for transaction in whole(source, start):
                count += 1
                for record in copied_records(transaction):
                    records += 1
                    size += len(record.data or b"")
                show(transaction.tid, count, size)
    print(f"Would copy {count:,} transactions, {records:,} records, {size:,} bytes.")
    return 0


def _verify(source: Any, destination: Any, console: Console) -> int:
    shown: list[Difference] = []
    count = 0
    with _progress(console, "verifying", source, ZERO_TID) as show:
        with closing(compare(source, destination)) as steps:
            for tid, found in steps:
                count += 1
                show(tid, count, 0)
                shown += found[: SHOWN_DIFFERENCES - len(shown)]
                if len(shown) == SHOWN_DIFFERENCES:
                    break
    if not shown:
        print(f"Verified {count:,} transactions: source and destination are equal.")
        return 0
    for difference in shown:
        print(f"neomigrate: different: {difference}", file=sys.stderr)
    return 1


@contextmanager
def _progress(
    console: Console, what: str, source: Any, start: bytes
) -> Iterator[Callable[[bytes, int, int], None]]:
    """Show progress by the times of transactions, because their number is unknown."""
    with closing(transactions(source, start)) as found:
        first = next((transaction.tid for transaction in found), start)
    begin, end = time_from_tid(first), time_from_tid(max(last_tid(source), first))
    with Bar(console, what, "transactions", end - begin) as bar:
        yield lambda tid, count, size: bar.update(time_from_tid(tid) - begin, count, size)
