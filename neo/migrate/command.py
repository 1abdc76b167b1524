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

from neo import __version__
from neo.migrate.blobs import Blobs, Policy, check_folders, takes_blobs
from neo.migrate.comparing import Difference, compare
from neo.migrate.console import Bar, Sums, checking, report_source, run
from neo.migrate.copying import Copied, copy_from, foresee, starting_point
from neo.migrate.errors import MigrateError
from neo.migrate.listing import last_tid, transactions, whole
from neo.migrate.opening import open_destination, open_source
from neo.migrate.watching import Warned
from neo.protocol.ids import ZERO_TID, time_from_tid
from neo.protocol.words import counted

#: The comparison ends after this number of differences.
SHOWN_DIFFERENCES = 10


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="neomigrate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Copy a ZODB storage with its whole history, into NEO, out of NEO, or between any\n"
        "others. An interrupted copy is resumed by the same command.",
        epilog="SOURCE and DESTINATION: the path of a FileStorage (*.fs), a URI such as\n"
        "neo://name@host:port, or the name of a section of the --config file.\n\n"
        "example:\n  neomigrate --verify Data.fs neo://shop@10.0.0.1:2050",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
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
        help="of a damaged FileStorage, copy what can be read on both sides of the damage, and blobs "
        "whose content is missing without it; list what is lost, and exit with 1",
    )
    folders = parser.add_argument_group(
        "blobs", "NEO needs none of these; a section or a URI names the folder of its storage itself."
    )
    folders.add_argument(
        "--blobs",
        type=Path,
        metavar="DIR",
        help="folder of blobs of a FileStorage SOURCE given by its path",
    )
    folders.add_argument(
        "--blobs-to",
        type=Path,
        metavar="DIR",
        help="folder for blobs of a FileStorage DESTINATION given by its path",
    )
    folders.add_argument(
        "--no-blobs",
        action="store_true",
        help="copy the records of blobs and none of their contents, which are then lost in the copy; "
        "list them, and exit with 1",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.no_blobs and (options.blobs or options.blobs_to):
        parser.error("--no-blobs copies no contents: leave out --blobs and --blobs-to")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the copy; return the exit code."""
    options = _arguments(argv)
    console = Console(stderr=True, highlight=False, quiet=options.quiet)
    failures = MigrateError, POSError, OSError
    return run("neomigrate", lambda warned: _migrate(options, console, warned), failures)


def _migrate(options: argparse.Namespace, console: Console, warned: Warned) -> int:
    check_folders(options.blobs, options.blobs_to)
    if options.no_blobs:
        print(
            "neomigrate: --no-blobs: the contents of blobs are NOT copied; applications that open a blob "
            "of the copy will fail",
            file=sys.stderr,
        )
    with checking(console) as report:
        source = open_source(
            options.source, options.config, options.salvage, report, options.blobs
        )
    with closing(source):
        # A FileStorage truncates the last transaction of an interrupted copy, which is copied again.
        with warned.uncounted():
            destination = open_destination(
                options.destination, options.config, options.dry_run, options.blobs_to
            )
        code = _copy_and_compare(options, source, destination, console)
        return max(code, report_source(source, "neomigrate"))


def _policy(options: argparse.Namespace) -> Policy:
    if options.no_blobs:
        return Policy.OMIT
    return Policy.SALVAGE if options.salvage else Policy.REFUSE


def _copy_and_compare(
    options: argparse.Namespace, source: Any, destination: Any | None, console: Console
) -> int:
    blobs = Blobs(_policy(options))
    # A dry run opens no folder for blobs that is not there yet, whether an option names it or a section.
    refused_by = None if options.blobs_to else f"storage {options.destination!r}"
    if destination is None:
        if Path(options.destination).suffix != ".fs":
            refused_by = None
        return _foresee(source, refused_by, starting_point(source, None), blobs, console)
    with closing(destination):
        if options.dry_run and options.verify:
            return _verify(source, destination, blobs.policy, console)
        start = starting_point(source, destination, blobs.policy)
        if options.dry_run:
            refused_by = None if takes_blobs(destination) else refused_by
            return _foresee(source, refused_by, start, blobs, console)
        code = _copy(source, destination, start, blobs, console)
        if options.verify:
            code = max(code, _verify(source, destination, blobs.policy, console))
        return code


# -- copy, dry run, verification -----------------------------------------------------------------


def _copy(
    source: Any, destination: Any, start: bytes | None, blobs: Blobs, console: Console
) -> int:
    if start is None:
        print("The destination has every transaction of the source already.")
        return 0
    if start != ZERO_TID:
        print(f"Going on at transaction 0x{start.hex()}; what is before was copied already.")
    sums = Sums(blobs)
    with _progress(console, "copying", source, start, sums, blobs) as show:
        with closing(copy_from(start, source, destination, blobs)) as steps:
            for copied in steps:
                sums.add(copied)
                show(copied.tid)
    print(f"Copied {sums}.")
    return _report_lost(blobs)


def _foresee(
    source: Any, refused_by: str | None, start: bytes | None, blobs: Blobs, console: Console
) -> int:
    """Say what would be copied. ``refused_by``: the name of the destination if it takes no blobs."""
    sums = Sums(blobs)
    if start is not None:
        with _progress(console, "reading", source, start, sums, blobs) as show:
            for transaction in whole(source, start):
                sums.add(foresee(transaction, source, refused_by, blobs))
                show(transaction.tid)
    print(f"Would copy {sums}.")
    return _report_lost(blobs)


def _report_lost(blobs: Blobs) -> int:
    """Print the blobs whose contents are not in the copy; return the exit code."""
    for line in blobs.lines():
        print(f"neomigrate: {line}", file=sys.stderr)
    return 1 if blobs.lost else 0


def _verify(source: Any, destination: Any, policy: Policy, console: Console) -> int:
    shown: list[Difference] = []
    blobs = Blobs(policy)
    sums = Sums(blobs)
    with _progress(console, "verifying", source, ZERO_TID, sums, blobs) as show:
        with closing(compare(source, destination, blobs)) as steps:
            for tid, found in steps:
                sums.add(Copied(tid, 0, 0))
                show(tid)
                shown += found[: SHOWN_DIFFERENCES - len(shown)]
                if len(shown) == SHOWN_DIFFERENCES:
                    break
    if not shown:
        what = counted(sums.transactions, "transaction")
        what += f" and the contents of {counted(blobs.count, 'blob')}" if blobs.count else ""
        but = ", except contents of blobs" if policy is Policy.OMIT else ""
        print(f"Verified {what}: source and destination are equal{but}.")
        return 0
    for difference in shown:
        print(f"neomigrate: different: {difference}", file=sys.stderr)
    return 1


@contextmanager
def _progress(
    console: Console, what: str, source: Any, start: bytes, sums: Sums, blobs: Blobs
) -> Iterator[Callable[[bytes], None]]:
    """Show progress by the times of transactions, because their number is unknown, and the sums.

    Yield a function to call after each transaction.
    """
    with closing(transactions(source, start)) as found:
        first = next((transaction.tid for transaction in found), start)
    begin, end = time_from_tid(first), time_from_tid(max(last_tid(source), first))
    place = 0.0
    with Bar(console, what, "transactions", end - begin) as bar:

        def show(tid: bytes | None = None) -> None:
            nonlocal place
            if tid is not None:
                place = time_from_tid(tid) - begin
            bar.update(place, sums.transactions, sums.total, blobs.count)

        # A transaction may have many contents, and each of them be large.
        blobs.report = show
        yield show
