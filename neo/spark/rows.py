"""Revisions and transactions → Arrow batches with the columns that were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from neo.client.scan import Revision
from neo.codec import Budget, BudgetExceeded, class_of, decode, state_json, value_json
from neo.protocol.ids import u64
from neo.protocol.packets import AnswerTransactionInformation
from neo.spark.tables import Column, schema_of

#: Values of one state before it is called too large.
JSON_BUDGET = 100_000

_EPOCH = date(1970, 1, 1).toordinal()
#: Columns that need more than the class out of a record.
_DECODED = {"refs", "state", "error", "dst", "dst_class", "kind", "dst_db"}


class UnreadableRecord(Exception):
    """A record could not be decoded, and the reader does not want to go on."""


class Builder:
    """Makes batches. One per task: its caches grow with what it reads."""

    def __init__(
        self, columns: Sequence[Column], json_budget: int = JSON_BUDGET, fail: bool = False
    ) -> None:
        """``fail``: raise UnreadableRecord instead of filling the column ``error``."""
        self.columns = columns
        self.schema = schema_of(columns)
        self.needs_data = any(column.data for column in columns)
        self._wants_state = any(column.name == "state" for column in columns)
        self._decoded = any(column.name in _DECODED for column in columns)
        self._json_budget = json_budget
        self._fail = fail
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
        return self._batch(self._object(partition, r) for r in page if not r.deleted)

    def changes(self, partition: int, page: Iterable[Revision]) -> pa.RecordBatch:
        """Those that were deleted, too."""
        return self._batch(
            self._object(partition, revision) | {"deleted": revision.deleted} for revision in page
        )

    def history(
        self, partition: int, page: Iterable[tuple[Revision, int | None, int]]
    ) -> pa.RecordBatch:
        """``page``: (revision, end_tid, seq)."""

        def rows() -> Iterator[dict[str, Any]]:
            for revision, end_tid, seq in page:
                row = self._object(partition, revision)
                row["end_tid"] = end_tid
                row["end_timestamp"] = None if end_tid is None else self.timestamp(end_tid)
                row["seq"] = seq
                row["deleted"] = revision.deleted
                yield row

        return self._batch(rows())

    def _object(self, partition: int, revision: Revision) -> dict[str, Any]:
        row: dict[str, Any] = {
            "partition": partition,
            "oid": revision.oid,
            "tid": revision.tid,
            "timestamp": self.timestamp(revision.tid),
            "size": None if revision.deleted else revision.size,
            "error": revision.error,
            "data": revision.data,
        }
        if revision.data is not None:
            self._decode(revision.data, row)
        if row["error"] is not None and self._fail:
            raise UnreadableRecord(
                f"object {revision.oid:#x} at serial {revision.tid:#018x}: {row['error']}"
            )
        return row

    def _decode(self, data: bytes, row: dict[str, Any]) -> None:
        if not self._decoded:
            row["class"] = class_of(data)
            return
        record = decode(data)
        row["class"] = record.class_name
        row["error"] = record.error
        if record.error is None:
            row["refs"] = [r.oid for r in record.references if r.kind == "s"]
        if self._wants_state:
            try:
                row["state"] = state_json(record, Budget(self._json_budget))
            except BudgetExceeded as e:
                row["error"] = str(e)

    # -- references --------------------------------------------------------------------------------

    def references(self, partition: int, page: Iterable[Revision]) -> pa.RecordBatch:
        def rows() -> Iterator[dict[str, Any]]:
            for revision in page:
                if revision.data is None:
                    continue
                record = decode(revision.data)
                for reference in record.references:
                    yield {
                        "partition": partition,
                        "src": revision.oid,
                        "src_tid": revision.tid,
                        "src_class": record.class_name,
                        "dst": reference.oid,
                        "dst_class": reference.class_name,
                        "kind": reference.kind,
                        "dst_db": reference.database,
                    }

        return self._batch(rows())

    # -- transactions ------------------------------------------------------------------------------

    def transactions(
        self, partition: int, page: Iterable[AnswerTransactionInformation]
    ) -> pa.RecordBatch:
        return self._batch(
            {
                "partition": partition,
                "tid": u64(t.tid),
                "timestamp": self.timestamp(u64(t.tid)),
                "user": t.user.decode("utf-8", "backslashreplace"),
                "description": t.description.decode("utf-8", "backslashreplace"),
                "extension": value_json(t.extension) if t.extension else None,
                "oids": [u64(oid) for oid in t.oid_list],
            }
            for t in page
        )

    def _batch(self, rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
        rows = list(rows)
        arrays = [
            pa.array([row.get(column.name) for row in rows], column.type) for column in self.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


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
