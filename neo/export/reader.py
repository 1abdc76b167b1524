"""Read any storage that lists its transactions once, from beginning to end, into sorted runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from neo.client.history.scan import Revision
from neo.export.folder import RUNS, sync, write
from neo.export.plan import (
    LIMIT,
    Boundary,
    ExportError,
    Plan,
    check_boundary,
    is_packed,
    packed,
)
from neo.export.segment import write_transactions
from neo.export.spill import ROW_BYTES, RUNS_MAX, Buffer, Run, merge_runs, pages, read_runs
from neo.migrate.listing import records, whole
from neo.protocol.ids import p64, u64
from neo.protocol.packets import AnswerTransactionInformation

PROGRESS = "progress.json"


class Progress(Struct, frozen=True, forbid_unknown_fields=True):
    """The durable progress of a reader.

    Revisions up to ``boundary`` are in ``runs`` and in ``parts`` files of transactions. ``written``: the
    number of runs that were ever written. ``complete``: all was read.
    """

    boundary: Boundary | None = None
    runs: tuple[Run, ...] = ()
    parts: int = 0
    written: int = 0
    complete: bool = False


def load_progress(runs: Path) -> Progress:
    path = runs / PROGRESS
    return json.decode(path.read_bytes(), type=Progress) if path.exists() else Progress()


def revisions(folder: Path, group: int) -> Iterator[tuple[int, list[Revision]]]:
    """Yield (partition, revisions) by oid and tid after all was read. ``folder``: of the snapshot."""
    runs = folder / RUNS
    return pages(read_runs(runs, load_progress(runs).runs, group))


class Reader:
    """A reader that resumes where another process was killed."""

    def __init__(self, source: Any, plan: Plan, folder: Path) -> None:
        """``folder``: of the unfinished snapshot."""
        self._source = source
        self._plan = plan
        self._folder = folder
        self._runs = folder / RUNS
        self._progress = load_progress(self._runs)
        self._written = self._progress.written
        self._pending: list[Run] = []
        self._buffer = Buffer(plan.partitions, plan.groups)
        self._transactions: list[AnswerTransactionInformation] = []

    def run(self, report: Callable[[int, int, int], None]) -> None:
        """Read all transactions. ``report``: called after each one with tid, records and bytes.

        Raise ExportError; PackedError if the source was packed meanwhile; MigrateError if it ends
        before the plan does.
        """
        before, plan = self._progress, self._plan
        if before.complete:
            return
        start, refuse_packed = plan.first, plan.first > 0
        boundary = before.boundary
        if boundary is not None:
            check_boundary(self._source, boundary)
            start = boundary.tid + 1
            refuse_packed = refuse_packed or not boundary.packed
        with closing(whole(self._source, p64(start), p64(plan.last))) as found:
            for transaction in found:
                if refuse_packed and is_packed(transaction):
                    raise packed()
                boundary = Boundary(u64(transaction.tid), is_packed(transaction))
                report(boundary.tid, *self._take(transaction))
                if self._buffer.full or self._pending:
                    self._keep(boundary)
        self._keep(boundary, complete=True)

    def _take(self, transaction: Any) -> tuple[int, int]:
        oids: dict[bytes, None] = {}  # a set that keeps the order
        size = 0
        for record in records(transaction):
            oid = u64(record.oid)
            if oid >= LIMIT:
                raise ExportError(
                    f"object {oid:#x} cannot be exported: its oid does not fit into a signed column of "
                    "64 bits"
                )
            data = record.data
            self._buffer.add(oid, u64(transaction.tid), data)
            size += len(data or b"")
            oids[record.oid] = None
            if self._buffer.full:
                self._write_run()
        self._transactions.append(
            AnswerTransactionInformation(
                transaction.tid,
                transaction.user,
                transaction.description,
                transaction.extension_bytes,
                False,
                list(oids),
            )
        )
        self._buffer.count(ROW_BYTES * (1 + len(oids)))
        return len(oids), size

    def _write_run(self) -> None:
        self._pending.append(self._buffer.write(self._new_run()))

    def _new_run(self) -> Path:
        self._written += 1
        return self._runs / f"{self._written:06}.run"

    def _keep(self, boundary: Boundary | None, complete: bool = False) -> None:
        """Make the progress durable, so that the next process continues after it."""
        self._write_run()
        parts = self._progress.parts
        if self._transactions or not parts:
            self._write_transactions(parts)
            parts += 1
        runs = [*self._progress.runs, *self._pending]
        merged = runs if len(runs) > RUNS_MAX else []
        if merged:
            runs = [merge_runs(self._runs, merged, self._new_run())]
        sync(self._runs)
        sync(self._folder / "transactions")
        self._progress = Progress(boundary, tuple(runs), parts, self._written, complete)
        write(self._runs / PROGRESS, json.format(json.encode(self._progress), indent=0))
        for run in merged:
            (self._runs / run.name).unlink()
        self._pending = []

    def _write_transactions(self, part: int) -> None:
        """Write a file; the next process reuses its name if this one is killed before it notes the
        progress.
        """
        by_partition: dict[int, list[AnswerTransactionInformation]] = {}
        for transaction in self._transactions:
            partition = u64(transaction.tid) % self._plan.partitions
            by_partition.setdefault(partition, []).append(transaction)
        path = self._folder / "transactions" / self._plan.file(part)
        write_transactions(path, sorted(by_partition.items()))
        self._transactions = []
