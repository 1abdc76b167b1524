"""Convert revisions and transactions into Arrow batches with the requested columns.

A few bytes of a record may expand to a large value. So batches are bounded by size, not by pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from neo.client.history.scan import Revision, portions
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

#: Greatest number of values in one state.
JSON_BUDGET = 100_000

_EPOCH = date(1970, 1, 1).toordinal()
#: Bytes counted per row besides its values, so that a batch has about 4,000 rows at most.
_ROW_BYTES = 1_024
#: Columns that need the next revision.
_ENDS = {"end_tid", "end_timestamp", "seq"}
#: Columns that need a decoded record.
_DECODED = {"refs", "state", "error"}

#: Columns of references: the source, and the target.
_SOURCE = ("src", "src_tid", "src_class")
_TARGET = ("kind", "dst", "dst_class", "dst_db")
_TRANSACTION = ("tid", "timestamp", "user", "description", "extension", "oids")

#: class, refs, state, error
Decoded = tuple[str | None, list[int] | None, str | None, str | None]
#: oid, tid, class
Source = tuple[int, int, str | None]
#: The columns of _TRANSACTION.
Transaction = tuple[int, int, str, str, str | None, list[int]]
Columns = dict[str, Sequence[Any]]


class UnreadableRecord(Exception):
    """A record could not be decoded, and the query has onError='fail'."""


class Builder:
    """Makes batches. Use one per task, because its caches grow with the rows that it reads."""

    def __init__(
        self,
        columns: Sequence[Column],
        json_budget: int = JSON_BUDGET,
        fail: bool = False,
        read: Callable[[bytes], Record] = decode,
    ) -> None:
        """``fail``: raise UnreadableRecord instead of filling the column ``error``.

        ``read``: replaces decode().
        """
        self.columns = columns
        self.schema = schema_of(columns)
        self.needs_data = any(column.data for column in columns)
        self._names = {column.name for column in columns}
        #: Whether a column needs the next revision.
        self.needs_ends = not self._names.isdisjoint(_ENDS)
        self._decodes = fail or not self._names.isdisjoint(_DECODED)
        self._json_budget = json_budget
        self._fail = fail
        self._read = read
        self._minutes: dict[int, int] = {}

    def timestamp(self, tid: int) -> int:
        """Return the time in a tid, in microseconds since 1970."""
        minutes, fraction = tid >> 32, tid & 0xFFFFFFFF
        start = self._minutes.get(minutes)
        if start is None:
            start = self._minutes[minutes] = _minute_start(minutes)
        return start + (fraction * 60_000_000 >> 32)

    # -- objects and history -----------------------------------------------------------------------

    def objects(self, partition: int, page: Iterable[Revision]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the revisions that are not deletions."""
        return self.changes(partition, (r for r in page if not r.deleted))

    def changes(self, partition: int, page: Iterable[Revision]) -> Iterator[pa.RecordBatch]:
        """Yield batches of all revisions, deletions included."""
        for part, decoded in self._parts(list(page)):
            yield self._batch(self._revisions(partition, part, decoded))

    def history(
        self, partition: int, page: Iterable[tuple[Revision, int | None, int]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns of history. ``page``: (revision, end_tid, seq)."""
        revisions, ends, numbers = _transposed(page, 3)
        start = 0
        for part, decoded in self._parts(revisions):
            rows = slice(start, start := start + len(part))
            columns = self._revisions(partition, part, decoded)
            columns["end_tid"], columns["seq"] = ends[rows], numbers[rows]
            if "end_timestamp" in self._names:
                columns["end_timestamp"] = [
                    None if tid is None else self.timestamp(tid) for tid in ends[rows]
                ]
            yield self._batch(columns)

    def _parts(
        self, page: Sequence[Revision]
    ) -> Iterator[tuple[Sequence[Revision], Sequence[Decoded]]]:
        """Split a page into batches; yield revisions, and decoded records if a column needs them."""
        if not self._decodes:
            yield page, ()
            return
        rows = ((revision, self._decoded(revision)) for revision in page)
        for part in portions(rows, self._made):
            revisions, decoded = _transposed(part, 2)
            yield revisions, decoded

    def _made(self, row: tuple[Revision, Decoded]) -> int:
        """Estimate the bytes of a row in a batch."""
        revision, (class_name, refs, state, _) = row
        size = _ROW_BYTES + len(class_name or "") + len(state or "") + 8 * len(refs or ())
        return size + (revision.size if "data" in self._names else 0)

    def _revisions(
        self, partition: int, page: Sequence[Revision], decoded: Sequence[Decoded]
    ) -> Columns:
        """Return the columns that all tables of revisions share."""
        oids, tids, deleted, sizes, values, errors = _transposed(page, 6)
        columns: Columns = {
            "partition": [partition] * len(oids),
            "oid": oids,
            "tid": tids,
            "deleted": deleted,
            "data": values,
            "error": errors,
        }
        if "timestamp" in self._names:
            columns["timestamp"] = list(map(self.timestamp, tids))
        if "size" in self._names:
            pairs = zip(deleted, sizes, strict=True)
            columns["size"] = [None if gone else size for gone, size in pairs]
        if self._decodes:
            columns |= zip(("class", "refs", "state", "error"), _transposed(decoded, 4), strict=True)
        elif "class" in self._names:
            columns["class"] = [None if data is None else class_of(data) for data in values]
        return columns

    def _refuse(self, revision: Revision, error: str | None) -> None:
        if self._fail and error is not None:
            raise UnreadableRecord(
                f"object {revision.oid:#x} at serial {revision.tid:#018x}: {error}"
            )

    def _decoded(self, revision: Revision) -> Decoded:
        data, error = revision.data, revision.error
        if data is None:
            self._refuse(revision, error)
            return None, None, None, error
        record = self._read(data)
        error, refs, state = record.error, None, None
        if "refs" in self._names and error is None:
            refs = [oid for kind, oid, _, _ in record.references if kind == "s"]
        if "state" in self._names:
            try:
                state = state_json(record, Budget(self._json_budget))
            except BudgetExceeded as e:
                error = str(e)
        self._refuse(revision, error)
        return record.class_name, refs, state, error

    # -- references --------------------------------------------------------------------------------

    def references(self, partition: int, page: Iterable[Revision]) -> Iterator[pa.RecordBatch]:
        for part in portions(self._references(page), _reference_size):
            columns: Columns = {"partition": [partition] * len(part)}
            for names, rows in zip((_SOURCE, _TARGET), _transposed(part, 2), strict=True):
                columns |= zip(names, _transposed(rows, len(names)), strict=True)
            yield self._batch(columns)

    def _references(self, page: Iterable[Revision]) -> Iterator[tuple[Source, Reference]]:
        for revision in page:
            self._refuse(revision, revision.error)
            if revision.data is not None:
                record = self._read(revision.data)
                self._refuse(revision, record.error)
                source = revision.oid, revision.tid, record.class_name
                for reference in record.references:
                    yield source, reference

    # -- transactions ------------------------------------------------------------------------------

    def transactions(
        self, partition: int, page: Iterable[AnswerTransactionInformation]
    ) -> Iterator[pa.RecordBatch]:
        for part in portions(map(self._transaction, page), _transaction_size):
            columns: Columns = {"partition": [partition] * len(part)}
            columns |= zip(_TRANSACTION, _transposed(part, len(_TRANSACTION)), strict=True)
            yield self._batch(columns)

    def _transaction(self, t: AnswerTransactionInformation) -> Transaction:
        tid = u64(t.tid)
        extension = value_json(t.extension) if t.extension else None
        oids = list(map(u64, t.oid_list))
        return tid, self.timestamp(tid), _text(t.user), _text(t.description), extension, oids

    def _batch(self, columns: Columns) -> pa.RecordBatch:
        arrays = [pa.array(columns[column.name], column.type) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _reference_size(row: tuple[Source, Reference]) -> int:
    (_, _, class_name), reference = row
    targets = len(reference.class_name or "") + len(reference.database or "")
    return _ROW_BYTES + len(class_name or "") + targets


def _transaction_size(row: Transaction) -> int:
    _, _, user, description, extension, oids = row
    texts = len(user) + len(description) + len(extension or "")
    return _ROW_BYTES + texts + 8 * len(oids)


def _transposed(rows: Iterable[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    """Return the columns of rows with ``width`` fields."""
    return list(zip(*rows, strict=True)) or [()] * width


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _minute_start(minutes: int) -> int:
    """Return the start of the minute in the high half of a tid, in microseconds since 1970.

    Tids count months of 31 days, so one beyond the end of a month belongs to the next month.
    """
    minutes, minute = divmod(minutes, 60)
    minutes, hour = divmod(minutes, 24)
    minutes, day = divmod(minutes, 31)
    year, month = divmod(minutes, 12)
    days = date(year + 1900, month + 1, 1).toordinal() + day - _EPOCH
    return ((days * 24 + hour) * 60 + minute) * 60_000_000
