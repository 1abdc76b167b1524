"""The whole database partition by partition: neo.client.history.scan gives what ZODB iterates over."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.serialize import referencesf
from ZODB.utils import p64, u64, z64

from neo.client import NEOStorage
from neo.client.history import scan
from neo.client.history.scan import Order, Range, Revision, Scanner
from neo.client.read.replicas import Feature, Question, Replicas, Where
from neo.protocol.blobs import Content, with_content
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from tests.pipelines.sample import Sample


@pytest.fixture(params=[True, False], ids=["pages", "foreign nodes"])
def scanner(
    request: pytest.FixtureRequest, storage: NEOStorage, monkeypatch: pytest.MonkeyPatch
) -> Scanner:
    if not request.param:
        monkeypatch.setattr(Feature, "_node_knows", lambda self, nid, backoff: False)
    return Scanner(storage)


def read(scanner: Scanner, what: Range) -> list[Revision]:
    return [
        revision
        for partition in range(scanner.partitions)
        for page in scanner.revisions(partition, what)
        for revision in page
    ]


@pytest.mark.parametrize("page_bytes", [1, 500, 1 << 20])
def test_snapshots_as_of_every_transaction(
    sample: Sample, scanner: Scanner, page_bytes: int
) -> None:
    for tid in sample.tids if page_bytes == 500 else sample.tids[-1:]:
        found = read(scanner, Range(Order.SNAPSHOT, p64(tid), page_bytes=page_bytes))
        assert {r.oid: (r.tid, r.data) for r in found if not r.deleted} == sample.snapshot(tid)


@pytest.mark.parametrize("order", [Order.HISTORY, Order.CHANGES])
def test_all_revisions_in_their_order(sample: Sample, scanner: Scanner, order: Order) -> None:
    found = read(scanner, Range(order, scanner.last_tid(), page_bytes=2000))
    assert {(r.oid, r.tid): r.data for r in found} == sample.revisions
    assert len(found) == len(sample.revisions)
    for partition in range(scanner.partitions):
        mine = [(r.oid, r.tid) for r in found if r.oid % scanner.partitions == partition]
        key = (lambda k: k[::-1]) if order is Order.CHANGES else (lambda k: k)
        assert mine == sorted(mine, key=key)


def test_revisions_of_a_range_of_tids(sample: Sample, scanner: Scanner) -> None:
    first, last = sample.tids[2], sample.tids[4]
    found = read(scanner, Range(Order.CHANGES, p64(last), p64(first)))
    assert {(r.oid, r.tid) for r in found} == {k for k in sample.revisions if first <= k[1] <= last}
    assert read(scanner, Range(Order.CHANGES, p64(first), p64(last))) == []


@pytest.mark.parametrize("page_bytes", [1, 1 << 20])
@pytest.mark.parametrize("order", [Order.SNAPSHOT, Order.HISTORY])
def test_revisions_of_a_range_of_oids(
    sample: Sample, scanner: Scanner, order: Order, page_bytes: int
) -> None:
    whole = read(scanner, Range(order, scanner.last_tid()))
    oids = sorted({revision.oid for revision in whole})
    for least, greatest in ((oids[3], oids[-4]), (oids[5], oids[5]), (0, oids[2]), (oids[-2], 2**63 - 1)):
        what = Range(order, scanner.last_tid(), oids=(least, greatest), page_bytes=page_bytes)
        assert read(scanner, what) == [r for r in whole if least <= r.oid <= greatest]
    assert read(scanner, Range(order, scanner.last_tid(), oids=(5, 4))) == []


def test_what_exists_no_more_is_told(sample: Sample, scanner: Scanner) -> None:
    found = read(scanner, Range(Order.SNAPSHOT, scanner.last_tid()))
    assert [r.oid for r in found if r.deleted] == [
        oid for (oid, _), data in sample.revisions.items() if data is None
    ]


def test_values_larger_than_wanted_are_left_out_and_counted(
    sample: Sample, scanner: Scanner
) -> None:
    tid = u64(scanner.last_tid())
    sizes = {oid: len(data) for oid, (_, data) in sample.snapshot(tid).items()}
    found = read(scanner, Range(Order.SNAPSHOT, p64(tid), value_bytes=150))
    assert {r.oid: r.size for r in found if not r.deleted} == sizes
    assert {r.oid for r in found if r.error} == {oid for oid, size in sizes.items() if size > 150}
    assert all(r.data is None for r in found if r.error)


@pytest.mark.parametrize("size", [20, 2 << 20])
def test_compressed_values_are_what_they_were_or_an_error(size: int) -> None:
    value = bytes(size)
    data = zlib.compress(value)
    for limit in size, size - 1, 32 << 20:
        found = scan._value(1, data, limit)
        if limit < size:
            assert found == (size, None, f"the record of {size} bytes is larger than {limit}")
        else:
            assert found == (size, value, None)
            assert "cannot be decompressed" in str(scan._value(1, data[:-5], limit)[2])
    assert scan._value(0, value, size) == (size, value, None)


def test_readers_get_records_without_references() -> None:
    """The reference is no part of what the application stored: not of its bytes, size and limit."""
    record = with_content(b"record", Content(3, bytes(32)))
    assert scan._value(0, record, 6) == (6, b"record", None)
    assert scan._value(0, record, 5)[:2] == (6, None)
    # A compressed record has none, whatever its last bytes look like.
    assert scan._value(1, zlib.compress(record), 100) == (len(record), record, None)


def test_a_page_is_uncompressed_portion_by_portion() -> None:
    """Not the node's pages: what their rows become."""
    sizes = [3 << 20, 3 << 20, 10, 20 << 20, 1 << 20, 3 << 20, 0]
    made: list[int] = []

    def items() -> Iterator[int]:
        for size in sizes:
            made.append(size)
            yield size

    found = []
    for portion in scan.portions(items(), lambda size: size):
        found.append(portion)
        assert len(made) <= sum(map(len, found)) + 1
    assert found == [[3 << 20], [3 << 20, 10], [20 << 20], [1 << 20, 3 << 20, 0]]
    assert list(scan.portions([], len)) == []


@pytest.mark.parametrize("size", [100, 700_000])
def test_single_objects_are_asked_for_in_windows_of_a_page(
    storage: NEOStorage, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    oids = range(0, 12 * 40, 12)
    meta = TransactionMetaData()
    storage.tpc_begin(meta)
    for oid in oids:
        storage.store(p64(oid), z64, random.Random(oid).randbytes(size), "", meta)
    storage.tpc_vote(meta)
    tid = storage.tpc_finish(meta)
    windows: list[int] = []
    read_many = Replicas.read_many

    def counted(self: Replicas, requests: Any) -> Any:
        windows.append(len(requests))
        return read_many(self, requests)

    monkeypatch.setattr(Replicas, "read_many", counted)
    found = list(Scanner(storage).objects(0, oids, Range(Order.SNAPSHOT, tid)))
    assert [r.oid for page in found for r in page] == list(oids)
    if size == 100:
        assert windows == [1, 2, 4, 8, 16, 9]
    else:
        assert max(windows) == 1
        assert max(map(len, found)) == 1


def test_without_data_only_ids_travel(sample: Sample, scanner: Scanner) -> None:
    found = read(scanner, Range(Order.HISTORY, scanner.last_tid(), data=False))
    assert {(r.oid, r.tid) for r in found} == set(sample.revisions)
    assert all(r.data is None and r.error is None for r in found)


def test_transactions_of_all_partitions_are_all_transactions(
    sample: Sample, scanner: Scanner
) -> None:
    found = [
        u64(transaction.tid)
        for partition in range(scanner.partitions)
        for page in scanner.transactions(partition)
        for transaction in page
    ]
    assert sorted(found) == sample.tids


def test_a_page_is_on_its_way_while_the_one_before_is_used(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    ask = Replicas.ask

    def counting(self: Replicas, where: Where, message: Any) -> Question[Any]:
        asked.append(message)
        return ask(self, where, message)

    monkeypatch.setattr(Replicas, "ask", counting)
    scanner = Scanner(sample.storage)
    pages = scanner.revisions(0, Range(Order.HISTORY, scanner.last_tid(), page_bytes=300))
    assert isinstance(pages, Generator)
    for count in range(2, 5):
        assert next(pages)
        assert len(asked) == count
    # What is on its way when the reader leaves does not disturb the next one.
    pages.close()
    whole = Range(Order.HISTORY, scanner.last_tid())
    found = [revision for page in scanner.revisions(0, whole) for revision in page]
    assert len(found) == sum(oid % 12 == 0 for oid, _ in sample.revisions)


def test_a_snapshot_older_than_a_pack_is_refused(sample: Sample, scanner: Scanner) -> None:
    sample.storage.pack(time.time(), referencesf, gc=False)
    with pytest.raises(ErrorAnswer, match="the database was packed") as refusal:
        read(scanner, Range(Order.SNAPSHOT, p64(sample.tids[2])))
    assert refusal.value.code is ErrorCode.TID_NOT_FOUND
    assert len(read(scanner, Range(Order.SNAPSHOT, scanner.last_tid()))) > 200
    sample.read_back()
    found = read(scanner, Range(Order.HISTORY, scanner.last_tid()))
    assert {(r.oid, r.tid): r.data for r in found} == sample.revisions


def test_single_objects_as_of_before_a_pack_are_refused(sample: Sample) -> None:
    scanner = Scanner(sample.storage)
    sample.storage.pack(time.time(), referencesf, gc=False)
    with pytest.raises(ErrorAnswer, match="packed up to"):
        list(scanner.objects(0, [0], Range(Order.SNAPSHOT, p64(sample.tids[2]))))
    now = Range(Order.SNAPSHOT, scanner.last_tid())
    assert [r.oid for page in scanner.objects(0, [0], now) for r in page] == [0]
