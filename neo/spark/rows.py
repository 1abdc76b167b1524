"""Revisions and transactions → Arrow batches with the columns that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from neo.client.scan import Revision
from neo.codec import (
    Budget,
    BudgetExceeded,
    Record,
    Reference,
    class_of,
    decode,
    state_json,
    value_json,
)
from neo.protocol.ids import u64
from neo.protocol.packets import AnswerTransactionInformation
from neo.spark.tables import Column, schema_of

#: Values of one state before it is called too large.
JSON_BUDGET = 100_000

_EPOCH = date(1970, 1, 1).toordinal()
#: Columns that need more than the class out of a record.
_DECODED = {"refs", "state", "error"}


#: In the table of references: what a row says of the object, and of what it refers to.
_SOURCE = ("src", "src_tid", "src_class")
_TARGET = ("kind", "dst", "dst_class", "dst_db")

Columns = dict[str, Sequence[Any]]


class UnreadableRecord(Exception):
    """A record could not be decoded, and the reader does not want to go on."""


class Builder:
    """Makes batches. One per task: its caches grow with what it reads."""

    def __init__(
        self,
        columns: Sequence[Column],
        json_budget: int = JSON_BUDGET,
        fail: bool = False,
        read: Callable[[bytes], Record] = decode,
    ) -> None:
        """``fail``: raise UnreadableRecord instead of filling the column ``error``. ``read``: decode(),
        or what remembers its answers."""
        self.columns = columns
        self.schema = schema_of(columns)
        self.needs_data = any(column.data for column in columns)
        self._names = {column.name for column in columns}
        self._json_budget = json_budget
        self._fail = fail
        self._read = read
        self._minutes: dict[int, int] = {}

    def timestamp(self, tid: int) -> int:
        """Microseconds since 1970 of the time in a tid."""
        minutes, fraction = tid >> 32, tid & 0xFFFFFFFF
        start = self._minutes.get(minutes)
        if start is None:
            start = self._minutes[minutes] = _minute_start(minutes)
        return start + (fraction * 60_000_000 >> 32)

    # -- objects and history -----------------------------------------------------------------------

    def objects(self, partition: int, page: Iterable[Revision]) -> pa.RecordBatch:
        """Those that exist."""
        return self._batch(self._revisions(partition, [r for r in page if not r.deleted]))

    def changes(self, partition: int, page: Iterable[Revision]) -> pa.RecordBatch:
        """Those that were deleted, too."""
        return self._batch(self._revisions(partition, list(page)))

    def history(
        self, partition: int, page: Iterable[tuple[Revision, int | None, int]]
    ) -> pa.RecordBatch:
        """``page``: (revision, end_tid, seq)."""
        revisions, ends, numbers = _transposed(page, 3)
        columns = self._revisions(partition, revisions)
        columns["end_tid"], columns["seq"] = ends, numbers
        if "end_timestamp" in self._names:
            columns["end_timestamp"] = [
                None if tid is None else self.timestamp(tid) for tid in ends
            ]
        return self._batch(columns)

    def _revisions(self, partition: int, page: Sequence[Revision]) -> Columns:
        """The columns that all tables of revisions have."""
        oids, tids, deleted, sizes, values, errors = _transposed(page, 6)
        columns: Columns = {
            "partition": [partition] * len(oids),
            "oid": oids,
            "tid": tids,
            "deleted": deleted,
            "data": values,
        }
        if "timestamp" in self._names:
            columns["timestamp"] = list(map(self.timestamp, tids))
        if "size" in self._names:
            pairs = zip(deleted, sizes, strict=True)
            columns["size"] = [None if gone else size for gone, size in pairs]
        if not self._names.isdisjoint(_DECODED):
            columns |= self._decoded(values, errors)
            errors = columns["error"]
        elif "class" in self._names:
            columns["class"] = [None if data is None else class_of(data) for data in values]
        if self._fail:
            self._refuse(page, errors)
        return columns

    @staticmethod
    def _refuse(page: Sequence[Revision], errors: Sequence[str | None]) -> None:
        for revision, error in zip(page, errors, strict=True):
            if error is not None:
                raise UnreadableRecord(
                    f"object {revision.oid:#x} at serial {revision.tid:#018x}: {error}"
                )

    def _decoded(self, values: Iterable[bytes | None], errors: Iterable[str | None]) -> Columns:
        wants_refs, wants_state = "refs" in self._names, "state" in self._names
        rows: list[tuple[str | None, list[int] | None, str | None, str | None]] = []
        for data, error in zip(values, errors, strict=True):
            if data is None:
                rows.append((None, None, None, error))
                continue
            record = self._read(data)
            error, refs, state = record.error, None, None
            if wants_refs and error is None:
                refs = [oid for kind, oid, _, _ in record.references if kind == "s"]
            if wants_state:
                try:
                    state = state_json(record, Budget(self._json_budget))
                except BudgetExceeded as e:
                    error = str(e)
            rows.append((record.class_name, refs, state, error))
        return dict(zip(("class", "refs", "state", "error"), _transposed(rows, 4), strict=True))

    # -- references --------------------------------------------------------------------------------

    def references(self, partition: int, page: Iterable[Revision]) -> pa.RecordBatch:
        sources: list[tuple[int, int, str | None]] = []
        found: list[Reference] = []
        for revision in page:
            if revision.data is not None:
                record = self._read(revision.data)
                source = revision.oid, revision.tid, record.class_name
                sources += [source] * len(record.references)
                found += record.references
        columns: Columns = {"partition": [partition] * len(found)}
        for names, rows in (_SOURCE, sources), (_TARGET, found):
            columns |= zip(names, _transposed(rows, len(names)), strict=True)
        return self._batch(columns)

    # -- transactions ------------------------------------------------------------------------------

    def transactions(
        self, partition: int, page: Iterable[AnswerTransactionInformation]
    ) -> pa.RecordBatch:
        page = list(page)
        tids = [u64(t.tid) for t in page]
        return self._batch(
            {
                "partition": [partition] * len(tids),
                "tid": tids,
                "timestamp": list(map(self.timestamp, tids)),
                "user": [_text(t.user) for t in page],
                "description": [_text(t.description) for t in page],
                "extension": [value_json(t.extension) if t.extension else None for t in page],
                "oids": [list(map(u64, t.oid_list)) for t in page],
            }
        )

    def _batch(self, columns: Columns) -> pa.RecordBatch:
        arrays = [pa.array(columns[column.name], column.type) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _transposed(rows: Iterable[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    """The columns of rows that have so many."""
    return list(zip(*rows, strict=True)) or [()] * width


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _minute_start(minutes: int) -> int:
    """Microseconds since 1970 of the minute that the high half of a tid counts.

    It counts months of 31 days, so that a tid beyond the end of a month runs into the next one.
    """
    minutes, minute = divmod(minutes, 60)
    minutes, hour = divmod(minutes, 24)
    minutes, day = divmod(minutes, 31)
    year, month = divmod(minutes, 12)
    days = date(year + 1900, month + 1, 1).toordinal() + day - _EPOCH
    return ((days * 24 + hour) * 60 + minute) * 60_000_000
