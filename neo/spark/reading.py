"""Reading one partition of one table: what a task of Spark does, and a thread of the export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from neo.client import NEOStorage
from neo.client.scan import PAGE_BYTES, VALUE_BYTES, Order, Range, Revision, Scanner
from neo.protocol.ids import p64
from neo.spark.rows import JSON_BUDGET, Builder
from neo.spark.tables import Column


@dataclass(frozen=True)
class Connection:
    """How a process of Spark reaches the cluster; plain text and numbers, for they travel."""

    masters: str
    cluster: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    wait_timeout: float = 60.0

    def open(self) -> NEOStorage:
        """Raises what NEOStorage does."""
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
    """What is read. ``last``: the transaction as of which; ``first``: changes and transactions begin
    there. ``oids``: those that are wanted, None for all. ``tids``: of history, the revisions whose tid
    is in [least, greatest]. ``on_error``: 'fail' or 'null'."""

    table: str
    columns: tuple[Column, ...]
    last: int
    first: int = 0
    page_bytes: int = PAGE_BYTES
    value_bytes: int = VALUE_BYTES
    json_budget: int = JSON_BUDGET
    oids: frozenset[int] | None = None
    tids: tuple[int, int] | None = None
    on_error: str = "null"


def read(scanner: Scanner, query: Query, partition: int) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, in batches of a page each; empty ones are left out."""
    builder = Builder(query.columns, query.json_budget, fail=query.on_error == "fail")
    for batch in _READERS[query.table](scanner, query, partition, builder):
        if batch.num_rows:
            yield batch


def _range(query: Query, builder: Builder, order: Order) -> Range:
    first = query.first if order is Order.CHANGES else 0
    return Range(
        order,
        p64(query.last),
        p64(first),
        builder.needs_data,
        query.page_bytes,
        query.value_bytes,
    )


def _pages(
    scanner: Scanner, query: Query, partition: int, builder: Builder, order: Order
) -> Iterator[list[Revision]]:
    wanted, what = query.oids, _range(query, builder, order)
    if wanted is None:
        yield from scanner.revisions(partition, what)
    elif order is Order.SNAPSHOT:
        mine = (oid for oid in wanted if oid % scanner.partitions == partition)
        yield from scanner.objects(partition, mine, what)
    else:
        for page in scanner.revisions(partition, what):
            yield [revision for revision in page if revision.oid in wanted]


def _objects(
    scanner: Scanner, query: Query, partition: int, builder: Builder
) -> Iterator[pa.RecordBatch]:
    for page in _pages(scanner, query, partition, builder, Order.SNAPSHOT):
        yield builder.objects(partition, page)


def _references(
    scanner: Scanner, query: Query, partition: int, builder: Builder
) -> Iterator[pa.RecordBatch]:
    for page in _pages(scanner, query, partition, builder, Order.SNAPSHOT):
        yield builder.references(partition, page)


def _history(
    scanner: Scanner, query: Query, partition: int, builder: Builder
) -> Iterator[pa.RecordBatch]:
    least, greatest = query.tids or (0, query.last)
    for page in with_ends(_pages(scanner, query, partition, builder, Order.HISTORY)):
        wanted = (row for row in page if least <= row[0].tid <= greatest)
        yield builder.history(partition, wanted)


def _changes(
    scanner: Scanner, query: Query, partition: int, builder: Builder
) -> Iterator[pa.RecordBatch]:
    for page in _pages(scanner, query, partition, builder, Order.CHANGES):
        yield builder.changes(partition, page)


def with_ends(
    pages: Iterable[list[Revision]],
) -> Iterator[list[tuple[Revision, int | None, int]]]:
    """To each revision of pages by (oid, tid): the tid of the one that replaced it, and its number."""
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


def _transactions(
    scanner: Scanner, query: Query, partition: int, builder: Builder
) -> Iterator[pa.RecordBatch]:
    for page in scanner.transactions(partition, p64(query.first), p64(query.last)):
        yield builder.transactions(partition, page)


_Reader = Callable[[Scanner, Query, int, Builder], Iterator[pa.RecordBatch]]
_READERS: dict[str, _Reader] = {
    "objects": _objects,
    "history": _history,
    "changes": _changes,
    "transactions": _transactions,
    "references": _references,
}
