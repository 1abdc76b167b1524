"""Readers in one Python process. Each function runs in a client process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from neo.client.history.scan import Scanner
from neo.codec import class_of, decode, state_json
from neo.protocol.ids import u64
from neo.spark.reading import Query, read
from neo.spark.tables import columns_of

#: kind → the columns of ``history`` that Spark reads.
KINDS = {
    "raw": "oid,tid,data",
    "default": "partition,oid,tid,timestamp,class,size",
    "references": "oid,tid,class,size,refs",
    "json": "oid,tid,class,size,refs,state",
}
_DECODE: dict[str, Callable[[bytes], object]] = {
    "raw": len,
    "default": class_of,
    "references": decode,
    "json": lambda data: state_json(decode(data)),
}


class Work(NamedTuple):
    """A read of ``rows`` rows in ``seconds``. ``cpu``: processor seconds of the reader's processes."""

    rows: int
    seconds: float
    cpu: float


def by_iterator(storage: Any, kind: str, seconds: float) -> Work:
    """Read all revisions with the iterator of any ZODB storage, until ``seconds`` are over. Decode from
    each record what ``kind`` needs."""
    decoded = _DECODE[kind]
    begin, cpu = time.monotonic(), time.process_time()
    rows = 0
    for transaction in storage.iterator():
        for record in transaction:
            rows += 1
            if record.data is not None:
                decoded(record.data)
        if time.monotonic() - begin > seconds:
            break
    return Work(rows, time.monotonic() - begin, time.process_time() - cpu)


def by_pages(storage: Any, kind: str, seconds: float) -> Work:
    """Read as a task of Spark does, without Spark: the same rows as Arrow batches, for each
    partition."""
    begin, cpu = time.monotonic(), time.process_time()
    scanner = Scanner(storage)
    columns = columns_of("history", KINDS[kind].split(","))
    query = Query("history", columns, u64(scanner.last_tid()))
    rows = 0
    for partition in range(scanner.partitions):
        rows += sum(batch.num_rows for batch in read(scanner, query, partition))
        if time.monotonic() - begin > seconds:
            break
    return Work(rows, time.monotonic() - begin, time.process_time() - cpu)


def count(storage: Any) -> tuple[int, int]:
    """Return the number of revisions, and the bytes of their records as ZODB wrote them."""
    scanner = Scanner(storage)
    query = Query("history", columns_of("history", ["size", "deleted"]), u64(scanner.last_tid()))
    rows = size = 0
    for partition in range(scanner.partitions):
        for batch in read(scanner, query, partition):
            rows += batch.num_rows
            size += sum(value or 0 for value in batch.column("size").to_pylist())
    return rows, size
