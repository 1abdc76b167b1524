"""The change feed: ``spark.readStream.format("neo")``.

An offset is the tid of the last transaction that was read. A batch has whole transactions, and is the
same each time it is read.

A feed from the beginning reads the revisions that packs left. So its first batch reaches at least to the
last pack, and its offset names that pack (``packed``): reading it after a later pack fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from neo.client.history.scan import Scanner
from neo.protocol.ids import p64, u64
from neo.spark.options import OptionError, Options
from neo.spark.plan import deal
from neo.spark.reading import read_task

Offset = dict[str, str]


def offset(tid: int) -> Offset:
    return {"tid": f"{tid:016x}"}


def tid_of(at: Offset) -> int:
    return int(at["tid"], 16)


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        table = options.query.table
        if table != "changes":
            raise OptionError(
                f"option 'table': a stream reads changes, not {table}; set table='changes'"
            )
        if options.tid is not None:
            raise OptionError(
                "options 'tid' and 'timestamp' are for batches: a stream begins at 'startingTid'"
            )
        self._options = options
        self._partitions = 0
        self._end: int | None = None

    def initialOffset(self) -> Offset:
        return offset(max(0, self._options.query.first - 1))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = self._last()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        first = tid_of(start)
        storage = self._options.connection.open()
        try:
            scanner = Scanner(storage)
            packed = scanner.packed() if not first else 0
            last = self._last_of(scanner)
            end = last if self._end is None else min(last, self._end)
            if end <= first:
                return start
            if isinstance(limit, ReadMaxRows):
                end = _limited(scanner, first, end, limit.max_rows)
        finally:
            storage.close()
        if first:
            return offset(end)
        return {**offset(max(end, min(packed, last))), "packed": f"{packed:016x}"}

    def reportLatestOffset(self) -> Offset | None:
        return offset(self._last())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first, last = tid_of(start), tid_of(end)
        if last <= first:
            return []
        if not self._partitions:
            self._last()
        count, packed = self._partitions, int(end.get("packed", "0"), 16)
        return [
            InputPartition((first, last, packed, task, count))
            for task in deal(range(count), self._options.tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return iter(())
        first, last, packed, partitions, count = partition.value
        query = replace(
            self._options.query, last=last, first=first + 1 if first else 0, packed=packed
        )
        return read_task(self._options.connection, query, partitions, count)

    # -- the cluster -------------------------------------------------------------------------------

    def _last(self) -> int:
        storage = self._options.connection.open()
        try:
            return self._last_of(Scanner(storage))
        finally:
            storage.close()

    def _last_of(self, scanner: Scanner) -> int:
        self._partitions = scanner.partitions
        last: int = u64(scanner.last_tid())
        return min(last, self._options.query.last)


def _limited(scanner: Scanner, first: int, last: int, rows: int) -> int:
    """Return the tid up to which there are about ``rows`` revisions, in whole transactions, at least
    one.
    """
    for transaction in scanner.in_order(p64(first + 1), p64(last)):
        rows -= len(transaction.oid_list)
        if rows <= 0:
            return int(u64(transaction.tid))
    return last
