"""Make one export: plan it or resume it, write its files, and publish them."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from neo.client import NEOStorage
from neo.export import workers
from neo.export.folder import Folder
from neo.export.plan import ExportError, Plan, check_resumed, checked_columns, first_tid, make_plan
from neo.export.reader import Reader
from neo.migrate.console import Bar, report_source
from neo.migrate.opening import open_source
from neo.protocol.ids import p64, time_from_tid
from neo.protocol.words import counted


@dataclass(frozen=True)
class Wanted:
    """The options of an export; see the command line. ``jobs``: None for the best number."""

    source: str
    parquet: Path
    config: Path | None
    since: int | None
    full: bool
    columns: str | None
    jobs: int | None


def export(wanted: Wanted, console: Console) -> int:
    """Export all new transactions; return the exit code."""
    folder = Folder(wanted.parquet)
    with closing(open_source(wanted.source, wanted.config)) as source, folder.locked():
        jobs = _jobs(wanted, source)
        code = report_source(source, "neoexport")
        folder.recover()
        plan = _plan(wanted, folder, source)
        if plan is None:
            print("The export has every transaction of the source already.")
            return code
        rows = _write(wanted, jobs, folder, plan, source, console)
        folder.publish(plan)
    print(f"Exported {counted(rows, 'revision')} up to transaction {plan.last:#018x}.")
    return code


def _plan(wanted: Wanted, folder: Folder, source: Any) -> Plan | None:
    """Return the plan of an interrupted export, or a new one; None if the folder is up to date."""
    columns = None if wanted.columns is None else checked_columns(wanted.columns)
    if wanted.full:
        folder.discard()
    plan = folder.unfinished_plan()
    if plan is not None:
        check_resumed(source, plan, columns)
        print(f"Going on with the export up to transaction {plan.last:#018x}.")
        return plan
    current = folder.current()
    before = None if current is None else folder.plan_of(current)
    plan = make_plan(source, before, wanted.since, columns, wanted.full)
    if plan is not None:
        folder.begin(plan)
    return plan


def _jobs(wanted: Wanted, source: Any) -> int:
    """Return the number of processes. Raise ExportError if the source cannot be read by that many."""
    if not (isinstance(source, NEOStorage) and source.embedded):
        return wanted.jobs or os.cpu_count() or 1
    if wanted.jobs not in (None, 1):
        raise ExportError(
            f"one process at a time has this folder open: leave --jobs {wanted.jobs} out, or serve the"
            " folder with neosimple, and export from its URI"
        )
    return 1


def _write(
    wanted: Wanted, jobs: int, folder: Folder, plan: Plan, source: Any, console: Console
) -> int:
    """Write all files of a snapshot. Return the number of revisions that this process read."""
    cluster = isinstance(source, NEOStorage)
    rows = size = 0
    if not cluster:
        begin = time_from_tid(p64(first_tid(source, plan)))
        end = time_from_tid(p64(plan.last))
        with Bar(console, "reading", "revisions", end - begin) as bar:

            def read(tid: int, more_rows: int, more_size: int) -> None:
                nonlocal rows, size
                rows, size = rows + more_rows, size + more_size
                bar.update(time_from_tid(p64(tid)) - begin, rows, size)

            Reader(source, plan, folder.unfinished).run(read)
    job = workers.Job(folder.path, plan, wanted.source if cluster else None, wanted.config)
    done = rows = size = 0
    with Bar(console, "writing", "revisions", plan.groups) as bar:

        def wrote(groups: int, more_rows: int, more_size: int) -> None:
            nonlocal done, rows, size
            done, rows, size = done + groups, rows + more_rows, size + more_size
            bar.update(done, rows, size)

        if jobs == 1:
            workers.run_here(job, source if cluster else None, wrote)
        else:
            workers.run(job, jobs, wrote)
    return rows
