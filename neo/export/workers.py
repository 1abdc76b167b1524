"""Processes that write the files of one group of partitions after another.

Each has a pipe to the process that started it and reports its progress there. So it notices the end of a
killed command within a page.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pyarrow import ArrowException
from ZODB.POSException import POSError

from neo.client import NEOStorage
from neo.client.history.scan import Order, Range, Revision, Scanner
from neo.export import reader
from neo.export.folder import LINKS, Folder
from neo.export.merging import Files, write_history, write_references
from neo.export.plan import DERIVED, ExportError, PackedError, Plan
from neo.export.segment import Report, write_changes, write_transactions
from neo.migrate.errors import MigrateError
from neo.migrate.opening import open_source
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import p64
from neo.protocol.packets import AnswerTransactionInformation

#: Errors that are reported in one line. ArrowException: a damaged file of the last export.
_EXPECTED = (
    *(ExportError, MigrateError, POSError, ErrorAnswer, ConnectionLost, OSError, ArrowException),
)

#: Messages of a process: rows and bytes that were read, the end of a group, or an error.
Message = tuple[int, int] | None | str


@dataclass(frozen=True)
class Job:
    """``source``, ``config``: a cluster that each process opens; None if all was read already."""

    folder: Path
    plan: Plan
    source: str | None
    config: Path | None


def run_here(job: Job, source: NEOStorage | None, report: Callable[[int, int, int], None]) -> None:
    """Do the same as run() in this process."""
    try:
        for group in range(job.plan.groups):
            write_group(job, source, group, lambda rows, size: report(0, rows, size))
            report(1, 0, 0)
    except (ErrorAnswer, ConnectionLost) as e:
        raise ExportError(str(e)) from e


def run(job: Job, processes: int, report: Callable[[int, int, int], None]) -> None:
    """Write the files of all groups. ``report``: called with groups done, rows and bytes.

    Raise ExportError.
    """
    todo = list(reversed(range(job.plan.groups)))
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        workers: dict[Any, BaseProcess] = {}
        for _ in range(min(processes, len(todo))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(job, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(_end, process, ours)
            workers[ours] = process
            ours.send(todo.pop())
        while workers:
            ready: list[Any] = wait(list(workers))
            for pipe in ready:
                read = _receive(pipe, workers[pipe])
                if read is not None:
                    report(0, *read)
                    continue
                report(1, 0, 0)
                if todo:
                    pipe.send(todo.pop())
                else:
                    del workers[pipe]


def _receive(pipe: Any, process: BaseProcess) -> tuple[int, int] | None:
    try:
        message: Message = pipe.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        raise ExportError(
            f"a process of this export ended with code {process.exitcode} (-9: killed, often for lack of "
            "memory; --jobs sets the number of processes): run the same command again to continue"
        ) from None
    if isinstance(message, str):
        raise ExportError(message)
    return message


def _end(process: BaseProcess, pipe: Any) -> None:
    """Kill a process. It loses no data: files are complete, or have temporary names."""
    pipe.close()
    process.kill()
    process.join()
    process.close()


# -- in the processes ----------------------------------------------------------------------------


def _work(job: Job, pipe: Any) -> None:
    """Write the groups that the pipe names, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides

    def report(rows: int, size: int) -> None:
        pipe.send((rows, size))

    try:
        with ExitStack() as stack:
            source = None
            if job.source is not None:
                source = stack.enter_context(closing(open_source(job.source, job.config)))
            while True:
                write_group(job, source, pipe.recv(), report)
                pipe.send(None)
    except (EOFError, BrokenPipeError):
        return  # the parent process has ended
    except _EXPECTED as e:
        pipe.send(str(e))


def write_group(job: Job, source: NEOStorage | None, group: int, report: Report) -> None:
    """Write the missing files of a group; each appears when it is complete."""
    folder, plan = Folder(job.folder), job.plan
    unfinished, name = folder.unfinished, plan.file(group)
    changes, links = unfinished / "changes" / name, unfinished / LINKS / name
    if not changes.exists():
        if source is None:
            pages = reader.revisions(unfinished, group)
        else:
            pages = _revisions(Scanner(source, plan.partitions), plan, group)
        write_changes(plan, unfinished, group, pages, report)
    if source is not None and not (unfinished / "transactions" / name).exists():
        found = _transactions(Scanner(source, plan.partitions), plan, group)
        write_transactions(unfinished / "transactions" / name, found)
    if plan.since:
        return
    files = Files(*(unfinished / table / name for table in DERIVED))
    before: list[Path | None] = [None] * len(DERIVED)
    if plan.previous is not None:
        old = folder.plan_of(plan.previous).file(group)
        before = [folder.snapshots / plan.previous / table / old for table in DERIVED]
    history, _, references = before
    if not files.history.exists():
        write_history(changes, history, files, plan.columns_of)
    if not files.references.exists():
        write_references(links, references, files)


def _revisions(scanner: Scanner, plan: Plan, group: int) -> Iterator[tuple[int, list[Revision]]]:
    """Yield (partition, revisions) by oid and tid, which the storage nodes sort.

    Raise PackedError if a pack removed some of them.
    """
    everything = Range(Order.HISTORY, p64(plan.last), p64(plan.first))
    try:
        for partition in plan.partitions_of(group):
            for page in scanner.revisions(partition, everything):
                yield partition, page
    except ErrorAnswer as e:
        if e.code is not ErrorCode.TID_NOT_FOUND:
            raise
        raise PackedError(
            f"the source was packed since the last export, or during this one ({e}): start anew "
            "with --full"
        ) from None


def _transactions(
    scanner: Scanner, plan: Plan, group: int
) -> Iterator[tuple[int, list[AnswerTransactionInformation]]]:
    """Yield (partition, transactions) by tid."""
    for partition in plan.partitions_of(group):
        for page in scanner.transactions(partition, p64(plan.first), p64(plan.last)):
            yield partition, page
