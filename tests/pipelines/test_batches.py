"""Records of a few bytes that become large make no large batches (docs/spark.md, *What may go wrong*)."""

from __future__ import annotations

import pickle
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha1
from typing import Any

import pyarrow as pa
import pytest

from neo.client.history.scan import Order, Range, Revision, Scanner, _data_size, portions
from neo.protocol.ids import MAX_TID, p64
from neo.protocol.packets import AnswerTransactionInformation
from neo.spark.rows import Builder
from neo.spark.tables import columns_of

MiB = 1 << 20
CLASS = b"\x80\x03capp\nDoc\n."
#: Never freed: what was allocated from a pool gives it its memory back, whenever that is.
POOLS: list[pa.MemoryPool] = []


def doubled() -> bytes:
    """3,200 characters, written 2^12 times: 13 MB of JSON."""
    state: Any = ["x" * 3200]
    for _ in range(12):
        state = [state, state]
    return pickle.dumps(state, 3)


def linked() -> bytes:
    """Ten thousand references to one class with a long name."""
    first = b"(C\x08" + p64(7) + b"cmodule\n" + b"n" * 300 + b"\ntq\1Q"
    return CLASS + b"\x80\x03](" + first + 10_000 * b"h\1Q" + b"e."


def revisions(record: bytes, count: int) -> list[Revision]:
    return [Revision(12 * n, 5, False, len(record), record, None) for n in range(count)]


def builder(table: str, *names: str) -> Builder:
    return Builder(columns_of(table, names or None), json_budget=10**6)


def states() -> Iterator[pa.RecordBatch]:
    return builder("objects", "oid", "state").objects(0, revisions(CLASS + doubled(), 12))


def states_with_ends() -> Iterator[pa.RecordBatch]:
    page = [(revision, 6, 1) for revision in revisions(CLASS + doubled(), 4)]
    return builder("history", "oid", "state", "end_tid").history(0, page)


def extensions() -> Iterator[pa.RecordBatch]:
    page = (
        AnswerTransactionInformation(p64(n), b"", b"", doubled(), False, []) for n in range(4)
    )
    return builder("transactions").transactions(0, page)


def references() -> Iterator[pa.RecordBatch]:
    return builder("references").references(0, revisions(linked(), 5))


def values() -> Iterator[pa.RecordBatch]:
    """A page of a storage node, with 31 MiB of zeros in each of its rows."""
    data = zlib.compress(bytes(31 * MiB))
    row = 1, sha1(data).digest(), len(data), data, None
    scanner = Scanner.__new__(Scanner)
    page = scanner._page([(p64(n), p64(5), *row) for n in range(20)], Range(Order.HISTORY, MAX_TID))
    for portion in portions(page, _data_size):
        yield from builder("objects", "oid", "data").objects(0, portion)


@contextmanager
def allocated() -> Iterator[Callable[[], int]]:
    """Bytes that Python and Arrow hold at their peaks; what the process kept of before does not count."""
    # With its first array Arrow imports pandas, if that is installed: 25 MB that no batch needs.
    pa.array([0])
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


#: ``row``: the largest. ``memory``: for the value in hand, the one before it, and what becomes of them.
@pytest.mark.parametrize(
    ("batches", "row", "memory"),
    [
        (states, 14 * MiB, 120 * MiB),
        (states_with_ends, 14 * MiB, 120 * MiB),
        (extensions, 14 * MiB, 120 * MiB),
        (references, 0, 16 * MiB),
        (values, 31 * MiB, 256 * MiB),
    ],
)
def test_a_page_that_becomes_large_is_several_batches(
    batches: Callable[[], Iterator[pa.RecordBatch]], row: int, memory: int
) -> None:
    sizes, rows = [], 0
    with allocated() as peak:
        for batch in batches():
            sizes.append(batch.nbytes)
            rows += batch.num_rows
            assert batch.num_rows <= 4_096
        grown = peak()
    assert rows
    assert max(sizes) <= max(4 * MiB, row) + MiB
    assert sum(sizes) > 2 * max(sizes)
    assert grown < memory, f"{grown:,}"
