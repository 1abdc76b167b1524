"""The command line of ``neoexport``.

Exit codes: 0 done, 1 impossible or incomplete, 2 wrong options, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from ZODB.POSException import POSError

from neo.client import NEOStorage
from neo.export.errors import ExportError
from neo.migrate.command import report_source, report_warned
from neo.migrate.errors import MigrateError
from neo.migrate.opening import open_source
from neo.migrate.watching import watched
from neo.protocol.ids import p64, parse_tid, time_from_tid

if TYPE_CHECKING:
    from neo.export.folder import Folder
    from neo.export.plan import Plan

MEGABYTE = 1e6
INTERRUPTED = 130


def _tid(text: str) -> int:
    """Parse a tid as the options of Spark do: an integer, 0x…, or 16 hexadecimal digits."""
    return int.from_bytes(parse_tid(f"0x{text}" if len(text) == 16 else text), "big")


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="neoexport",
        description="Write a ZODB storage as Parquet files: the tables objects, history, changes, "
        "transactions and references that Spark reads from NEO. The same command again appends "
        "what is new, or goes on after an interruption.",
        epilog="SOURCE: the path of a FileStorage (*.fs), a URI such as neo://name@host:port, or the "
        "name of a section of the --config file.",
    )
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("--parquet", type=Path, metavar="DIR", required=True, help="where to")
    parser.add_argument("--config", type=Path, metavar="FILE", help="ZConfig file of storages")
    parser.add_argument(
        "--since",
        type=_tid,
        metavar="TID",
        help="what is up to this transaction is there already, or not wanted: an empty folder then "
        "gets only changes and transactions",
    )
    parser.add_argument(
        "--full", action="store_true", help="everything anew, in the place of what is there"
    )
    parser.add_argument(
        "--columns", metavar="LIST", help="columns of revisions (default: all but data)"
    )
    parser.add_argument(
        "--jobs", type=_positive, default=os.cpu_count() or 1, metavar="N", help="processes"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the export; return the exit code."""
    options = _arguments(argv)
    console = Console(stderr=True, highlight=False, quiet=options.quiet)
    try:
        from pyarrow import ArrowException
    except ImportError:
        print("neoexport: pyarrow is missing: pip install 'zodb-neo[parquet]'", file=sys.stderr)
        return 1
    with watched() as warned:
        code = _run(
            options, console, (ExportError, MigrateError, POSError, OSError, ArrowException)
        )
    return max(code, report_warned(warned, "neoexport"))


def _run(
    options: argparse.Namespace, console: Console, failures: tuple[type[Exception], ...]
) -> int:
    try:
        return _export(options, console)
    except failures as e:
        print(f"neoexport: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("neoexport: interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED


def _export(options: argparse.Namespace, console: Console) -> int:
    from neo.export.folder import Folder

    folder = Folder(options.parquet)
    with closing(open_source(options.source, options.config)) as source, folder.locked():
        code = report_source(source, "neoexport")
        folder.recover()
        plan = _plan(options, folder, source)
        if plan is None:
            print("The export has every transaction of the source already.")
            return code
        rows = _write(options, folder, plan, source, console)
        folder.publish(plan)
    print(f"Exported {rows:,} revisions up to transaction {plan.last:#018x}.")
    return code


def _plan(options: argparse.Namespace, folder: Folder, source: Any) -> Plan | None:
    """Return the plan of an interrupted export, or a new one; None if the folder is up to date."""
    from neo.export.plan import check_resumed, checked_columns, make_plan

    columns = None if options.columns is None else checked_columns(options.columns)
    if options.full:
        folder.discard()
    plan = folder.unfinished_plan()
    if plan is not None:
        check_resumed(source, plan, columns)
        print(f"Going on with the export up to transaction {plan.last:#018x}.")
        return plan
    current = folder.current()
    before = None if current is None else folder.plan_of(current)
    plan = make_plan(source, before, options.since, columns, options.full)
    if plan is not None:
        folder.begin(plan)
    return plan


def _write(
    options: argparse.Namespace, folder: Folder, plan: Plan, source: Any, console: Console
) -> int:
    """Write all files of a snapshot. Return the number of revisions that this process read."""
    from neo.export import workers
    from neo.export.plan import first_tid
    from neo.export.reader import Reader

    cluster = isinstance(source, NEOStorage)
    if not cluster:
        begin = time_from_tid(p64(first_tid(source, plan)))
        with _Bar(console, "reading", time_from_tid(p64(plan.last)) - begin) as bar:

            def read(tid: int, rows: int, size: int) -> None:
                bar.add(rows, size)
                bar.to(time_from_tid(p64(tid)) - begin)

            Reader(source, plan, folder.unfinished).run(read)
    job = workers.Job(folder.path, plan, options.source if cluster else None, options.config)
    with _Bar(console, "writing", plan.groups) as bar:
        done = 0

        def wrote(groups: int, rows: int, size: int) -> None:
            nonlocal done
            done += groups
            bar.add(rows, size)
            bar.to(done)

        if options.jobs == 1:
            workers.run_here(job, source if cluster else None, wrote)
        else:
            workers.run(job, options.jobs, wrote)
    return bar.rows


# -- progress ------------------------------------------------------------------------------------


class _Bar:
    """A progress bar. ``total``: the last place, in the unit of places."""

    def __init__(self, console: Console, what: str, total: float) -> None:
        # A source of one moment is done when that moment is.
        self._total = max(total, 1e-9)
        self.rows = self._size = 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task(what, total=self._total, text="")

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def add(self, rows: int, size: int) -> None:
        self.rows += rows
        self._size += size

    def to(self, place: float) -> None:
        seconds = self._progress.tasks[0].elapsed or 1.0
        text = f"{self.rows:,} revisions  {self._size / MEGABYTE:,.1f} MB"
        rate = f"{self._size / MEGABYTE / seconds:,.1f} MB/s, {self.rows / seconds:,.0f}/s"
        self._progress.update(self._task, completed=place, text=f"{text}  {rate}")
