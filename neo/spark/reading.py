"""Read one partition of one table, in a task of Spark or a process of the export."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from neo.client import NEOStorage
from neo.client.history.scan import ALL, PAGE_BYTES, VALUE_BYTES, Order, Range, Revision, Scanner
from neo.protocol.ids import ZERO_TID, p64
from neo.spark.rows import JSON_BUDGET, Builder
from neo.spark.tables import Column


@dataclass(frozen=True)
class Connection:
    """The connection parameters of a Spark task, which must be picklable."""

    masters: str
    cluster: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    wait_timeout: float = 60.0

    def open(self) -> NEOStorage:
        """Connect to the cluster. Raise errors of NEOStorage."""
        return NEOStorage(
            self.masters,
            self.cluster,
            read_only=True,
            cache_size=0,
            wait_timeout=self.wait_timeout,
            ca=self.ca,
            cert=self.cert,
            key=self.key,
        )


@dataclass(frozen=True)
class Query:
    """The parameters of a read.

    ``last``: the transaction as of which rows are read. ``first``: where history, changes and
    transactions begin; 0: at the oldest row that is left. ``packed``: the last pack when the query was
    planned; a later pack raises an error if it would change the rows. ``oids``: the wanted oids; None:
    all. ``oid_range``, ``tids``: bounds [least, greatest]; tids do not apply to snapshots.
    ``on_error``: 'fail' or 'null'.
    """

    table: str
    columns: tuple[Column, ...]
    last: int = ALL[1]
    first: int = 0
    packed: int = 0
    page_bytes: int = PAGE_BYTES
    value_bytes: int = VALUE_BYTES
    json_budget: int = JSON_BUDGET
    oids: frozenset[int] | None = None
    oid_range: tuple[int, int] = ALL
    tids: tuple[int, int] = ALL
    on_error: str = "null"


def read(scanner: Scanner, query: Query, partition: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one partition in non-empty batches.

    Raise errors of Scanner; ErrorAnswer TID_NOT_FOUND at the end if a pack ran meanwhile.
    """
    builder = Builder(query.columns, query.json_budget, fail=query.on_error == "fail")
    for batch in _batches(scanner, query, partition, builder):
        if batch.num_rows:
            yield batch


def read_task(
    connection: Connection, query: Query, partitions: Sequence[int], count: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task: of ``partitions``, if there are ``count`` in all. Closing the generator
    closes the connections. Raise RegroupedError if there is another number by now."""
    if not partitions:
        return
    storage = connection.open()
    try:
        scanner = Scanner(storage, count)
        for partition in partitions:
            yield from read(scanner, query, partition)
    finally:
        storage.close()


_ORDERS = {
    "objects": Order.SNAPSHOT,
    "references": Order.SNAPSHOT,
    "history": Order.HISTORY,
    "changes": Order.CHANGES,
}


def _range(query: Query, builder: Builder, order: Order) -> Range:
    """Return the range to read. A range that a pack may have reached is read whole and filtered here."""
    first, last = 0, query.last
    oids = query.oid_range
    if query.oids:
        oids = max(oids[0], min(query.oids)), min(oids[1], max(query.oids))
    if order is Order.CHANGES:
        least, greatest = query.tids
        first = query.first if least <= query.packed else max(query.first, least)
        last = min(last, max(greatest, query.packed))
    return Range(
        order,
        p64(last),
        p64(first),
        ALL if order is Order.CHANGES else oids,
        builder.needs_data,
        query.page_bytes,
        query.value_bytes,
    )


def _pages(
    scanner: Scanner, query: Query, partition: int, builder: Builder, order: Order
) -> Iterator[list[Revision]]:
    wanted, what = query.oids, _range(query, builder, order)
    least, greatest = query.oid_range
    if wanted is not None and order is Order.SNAPSHOT:
        mine = (oid for oid in wanted if oid % scanner.partitions == partition)
        yield from scanner.objects(partition, (o for o in mine if least <= o <= greatest), what)
    elif wanted is not None or (order is Order.CHANGES and query.oid_range != ALL):
        for page in scanner.revisions(partition, what):
            yield [
                revision
                for revision in page
                if least <= revision.oid <= greatest and (wanted is None or revision.oid in wanted)
            ]
    else:
        yield from scanner.revisions(partition, what)
    if order is not Order.SNAPSHOT and what.first == ZERO_TID:
        scanner.check_packed(partition, query.packed)


def _tids(query: Query) -> tuple[int, int]:
    """Return the bounds [least, greatest] of the tids of rows."""
    least, greatest = query.tids
    return max(query.first, least), min(query.last, greatest)


def _batches(
    scanner: Scanner, query: Query, partition: int, builder: Builder
) -> Iterator[pa.RecordBatch]:
    least, greatest = _tids(query)
    if query.table == "transactions":
        for transactions in scanner.transactions(partition, p64(least), p64(greatest)):
            yield from builder.transactions(partition, transactions)
        return
    pages = _pages(scanner, query, partition, builder, _ORDERS[query.table])
    if query.table == "history" and builder.needs_ends:
        for rows in with_ends(pages):
            wanted = (row for row in rows if least <= row[0].tid <= greatest)
            yield from builder.history(partition, wanted)
        return
    for page in pages:
        if query.table == "objects":
            yield from builder.objects(partition, page)
        elif query.table == "references":
            yield from builder.references(partition, page)
        else:
            yield from builder.changes(partition, [r for r in page if least <= r.tid <= greatest])


def with_ends(
    pages: Iterable[list[Revision]],
) -> Iterator[list[tuple[Revision, int | None, int]]]:
    """Yield revisions with the tid of the successor and a number; pages are sorted by (oid, tid)."""
    waiting: Revision | None = None
    seq = 0
    for page in pages:
        rows: list[tuple[Revision, int | None, int]] = []
        for revision in page:
            if waiting is not None:
                same = waiting.oid == revision.oid
                rows.append((waiting, revision.tid if same else None, seq))
                seq = seq if same else 0
            waiting, seq = revision, seq + 1
        yield rows
    if waiting is not None:
        yield [(waiting, None, seq)]
