"""What readers see of a database that is packed: what is left, or a clear error, and never less without a
word (docs/spark.md, *Changes as a stream*). Without Spark, but through what it calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    Filter,
    GreaterThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from ZODB import DB
from ZODB.utils import u64

from neo.client.history.scan import Scanner
from neo.client.maintenance.pack import pack
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64
from neo.spark.options import OptionError, parse
from neo.spark.plan import pin
from neo.spark.source import PushingReader
from neo.spark.stream import ChangeReader, Offset
from tests.pipelines.sample import Document, Sample
from tests.zodb.fleet import NAME, Fleet

TID = ("tid",)
HISTORIES = ("history", "changes")
Rows = list[tuple[int, int]]


class Source:
    """Of a fleet: loads and feeds, as Spark makes them."""

    def __init__(self, fleet: Fleet, sample: Sample) -> None:
        self._fleet = fleet
        self._sample = sample

    def _options(self, table: str, more: dict[str, Any]) -> Any:
        given = {
            "masters": self._fleet.masters,
            "cluster": NAME,
            "table": table,
            "maxTasks": 1,
            **more,
        }
        given.setdefault("columns", "oid,tid")
        return parse({name: str(value) for name, value in given.items()})

    def load(self, table: str, **more: Any) -> PushingReader:
        options = self._options(table, more)
        return PushingReader(options, pin(options))

    def feed(self, **more: Any) -> ChangeReader:
        return ChangeReader(self._options("changes", more))

    def pack(self, tid: int) -> None:
        """Up to a transaction."""
        storage = self._sample.storage
        pack(storage._session.master, storage._invalidations, storage, p64(tid), None)

    def commit(self, name: str) -> int:
        db = DB(self._sample.storage)
        with db.transaction() as connection:
            connection.root()[name] = Document(1)
        self._sample.read_back()
        return self._sample.tids[-1]


@pytest.fixture
def source(fleet: Fleet, sample: Sample) -> Source:
    return Source(fleet, sample)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def rows(reader: Any, filters: Iterable[Filter] = (), tasks: Any = None) -> Rows:
    if filters:
        assert list(reader.pushFilters(list(filters))) == []
    tasks = reader.partitions() if tasks is None else tasks
    return rows_of(batch for task in tasks for batch in reader.read(task))


# -- loads ---------------------------------------------------------------------------------------


def test_as_of_before_a_pack_is_refused(source: Source, sample: Sample) -> None:
    tid, packed = sample.tids[2], sample.tids[4]
    columns = dict.fromkeys(("objects", "history", "changes"), "oid,tid")
    columns["references"] = "src,src_tid"
    early = {table: source.load(table, columns=c, tid=tid) for table, c in columns.items()}
    assert all(map(rows, early.values()))
    source.pack(packed)
    for table, reader in early.items():
        with pytest.raises(ErrorAnswer, match=f"packed up to {packed:016x}"):
            rows(reader)
        for option in ("tid", "endingTid"):
            with pytest.raises(OptionError, match=f"packed up to {packed:#018x}, and the end"):
                source.load(table, columns=columns[table], **{option: tid})
        assert rows(source.load(table, columns=columns[table], tid=packed))


def test_to_begin_before_a_pack_is_refused(source: Source, sample: Sample) -> None:
    tid, packed = sample.tids[2], sample.tids[4]
    source.pack(packed)
    sample.read_back()
    expected = sorted(key for key in sample.revisions if key[1] > packed)
    for table in HISTORIES:
        for first in (tid, packed):
            with pytest.raises(OptionError, match="'startingTid'.* is not later"):
                source.load(table, startingTid=first)
        assert rows(source.load(table, startingTid=packed + 1)) == expected
    # Transactions stay.
    transactions = source.load("transactions", columns="partition,tid", startingTid=tid)
    assert len(rows(transactions)) == len(sample.tids) - 2


def test_a_pushed_tid_gives_what_a_filter_would_of_what_a_pack_left(
    source: Source, sample: Sample
) -> None:
    source.pack(sample.tids[4])
    sample.read_back()
    left = sorted(sample.revisions)
    for table in HISTORIES:
        assert rows(source.load(table)) == left
        for tid in sample.tids[2], sample.tids[4], sample.tids[5]:
            for condition, keep in (
                (GreaterThan(TID, tid), tid.__lt__),
                (LessThanOrEqual(TID, tid), tid.__ge__),
            ):
                expected = [row for row in left if keep(row[1])]
                assert rows(source.load(table), [condition]) == expected


def test_a_pack_after_the_load_is_noticed(source: Source, sample: Sample) -> None:
    source.pack(sample.tids[2])
    readers = [source.load(table) for table in HISTORIES]
    later = source.load("changes", startingTid=sample.tids[5])
    begun = []
    for reader in readers:
        (task,) = reader.partitions()
        begun.append(iter(reader.read(task)))
        assert next(begun[-1])
    source.pack(sample.tids[4])
    for reader, batches in zip(readers, begun, strict=True):
        for rest in batches, reader.read(*reader.partitions()):
            with pytest.raises(ErrorAnswer, match=f"packed up to {sample.tids[4]:016x}"):
                list(rest)
    # What is later than the pack is what it was.
    assert rows(later) == sorted(key for key in sample.revisions if key[1] >= sample.tids[5])


def test_the_last_pack_is_found(source: Source, sample: Sample) -> None:
    scanner = Scanner(sample.storage)
    assert scanner.packed() == 0
    for tid in (sample.tids[1], sample.tids[4], sample.tids[-1]):
        source.pack(tid)
        assert scanner.packed() == tid


# -- the change feed -----------------------------------------------------------------------------


def follow(reader: ChangeReader, limit: ReadLimit, start: Offset | None = None) -> list[Rows]:
    """The batches of a feed up to its end."""
    found = []
    start = start or reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        found.append(rows(reader, tasks=reader.partitions(start, end)))
        start = end
    return found


def test_a_feed_from_the_start_reads_what_a_pack_left(source: Source, sample: Sample) -> None:
    source.pack(sample.tids[4])
    source.commit("later")
    # The first batch reaches up to the pack, the others are as small as they may be.
    for limit, count in (ReadMaxRows(1), len(sample.tids) - 4), (ReadAllAvailable(), 1):
        batches = follow(source.feed(), limit)
        assert len(batches) == count
        assert sorted(row for batch in batches for row in batch) == sorted(sample.revisions)
    with pytest.raises(ErrorAnswer, match="packed up to"):
        follow(source.feed(endingTid=sample.tids[2]), ReadMaxRows(1))


def test_a_pack_behind_a_feed_does_not_disturb_it(source: Source, sample: Sample) -> None:
    reader = source.feed()
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    source.pack(u64(p64(int(start["tid"], 16))))
    tid = source.commit("later")
    expected = sorted(key for key in sample.revisions if key[1] == tid)
    assert follow(reader, ReadAllAvailable(), start) == [expected]


@pytest.mark.parametrize("before", [False, True], ids=["never packed", "packed before"])
def test_a_pack_between_a_crash_and_the_batch_again_is_told(
    source: Source, sample: Sample, before: bool
) -> None:
    if before:
        source.pack(sample.tids[1])
    reader = source.feed()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(150))
    once = rows(reader, tasks=reader.partitions(start, end))
    # Another process, with nothing but the offsets.
    again = source.feed()
    assert rows(again, tasks=again.partitions(again.initialOffset(), dict(end))) == once
    source.pack(sample.tids[2])
    with pytest.raises(ErrorAnswer, match="packed up to"):
        rows(again, tasks=again.partitions(start, end))


def test_available_now_ends_though_a_pack_is_later(source: Source, sample: Sample) -> None:
    reader = source.feed()
    reader.prepareForTriggerAvailableNow()
    tid = source.commit("later")
    source.pack(tid)
    batches = follow(reader, ReadMaxRows(1))
    sample.read_back()
    assert [sorted(sample.revisions)] == batches
