"""What a query wants is told to the reader, which reads no more: without Spark and without a cluster."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

from neo.client.history.scan import Order
from neo.protocol.ids import u64
from neo.spark.options import Options
from neo.spark.plan import Pinned
from neo.spark.pushdown import Wanted, push
from neo.spark.reading import Connection, Query, _range, _tids
from neo.spark.rows import Builder
from neo.spark.source import PushingReader

MAX = 2**63 - 1
OID, TID, PARTITION, DST = ("oid",), ("tid",), ("partition",), ("dst",)


@pytest.mark.parametrize(
    ("table", "condition", "wanted"),
    [
        ("objects", EqualTo(OID, 3), Wanted(oids=frozenset([3]))),
        ("objects", In(OID, (3, 4, None)), Wanted(oids=frozenset([3, 4]))),
        ("objects", EqualTo(OID, -1), Wanted(oids=frozenset())),
        ("objects", GreaterThan(OID, 5), Wanted(oid_range=(6, MAX))),
        ("changes", LessThanOrEqual(OID, 5), Wanted(oid_range=(0, 5))),
        ("references", GreaterThanOrEqual(("src",), -3), Wanted(oid_range=(0, MAX))),
        ("objects", EqualTo(PARTITION, 2), Wanted(partitions=frozenset([2]))),
        ("references", EqualTo(("src",), 3), Wanted(oids=frozenset([3]))),
        ("history", EqualTo(TID, 5), Wanted(tids=(5, 5))),
        ("changes", GreaterThan(TID, 5), Wanted(tids=(6, MAX))),
        ("changes", GreaterThanOrEqual(TID, 5), Wanted(tids=(5, MAX))),
        ("transactions", LessThan(TID, 5), Wanted(tids=(0, 4))),
        ("transactions", LessThanOrEqual(TID, 5), Wanted(tids=(0, 5))),
    ],
)
def test_a_filter_is_pushed(table: str, condition: Filter, wanted: Wanted) -> None:
    assert push(table, [condition]) == (wanted, [])


@pytest.mark.parametrize(
    ("table", "condition"),
    [
        ("objects", EqualTo(TID, 5)),  # another revision would be current
        ("references", EqualTo(TID, 5)),
        ("references", EqualTo(DST, 5)),
        ("transactions", EqualTo(OID, 5)),
        ("transactions", LessThan(OID, 5)),
        ("references", LessThan(DST, 5)),
        ("objects", LessThan(OID, None)),
        ("objects", StringContains(("class",), "x")),
        ("objects", EqualTo(("state", "oid"), 5)),
    ],
)
def test_a_filter_is_left_to_spark(table: str, condition: Filter) -> None:
    assert push(table, [condition]) == (Wanted(), [condition])


def test_filters_narrow_each_other() -> None:
    conditions = [GreaterThan(TID, 3), LessThan(TID, 9), In(OID, (1, 2)), In(OID, (2, 3))]
    assert push("history", conditions) == (Wanted(oids=frozenset([2]), tids=(4, 8)), [])


@pytest.mark.parametrize(
    ("table", "conditions", "partitions"),
    [
        ("objects", [], list(range(12))),
        ("objects", [EqualTo(OID, 13)], [1]),
        ("objects", [In(OID, (13, 25, 2))], [1, 2]),
        ("objects", [In(OID, (13, 2)), EqualTo(PARTITION, 2)], [2]),
        ("objects", [EqualTo(OID, -1)], []),
        ("objects", [GreaterThan(OID, 13), LessThan(OID, 16)], [2, 3]),
        ("objects", [GreaterThan(OID, 10), LessThanOrEqual(OID, 13)], [0, 1, 11]),
        ("objects", [In(OID, (13, 25, 2)), GreaterThan(OID, 2)], [1]),
        ("history", [LessThan(OID, 0)], []),
        ("history", [GreaterThan(OID, 9), LessThan(OID, 10)], []),
        ("objects", [EqualTo(OID, 1), EqualTo(OID, 2)], []),
        ("changes", [EqualTo(TID, -1)], []),
        ("transactions", [LessThan(TID, 0)], []),
        ("history", [GreaterThan(TID, MAX)], []),
        ("history", [GreaterThan(TID, 5), LessThan(TID, 5)], []),
    ],
)
def test_only_partitions_that_may_have_rows_are_read(
    table: str, conditions: list[Filter], partitions: list[int]
) -> None:
    reader = PushingReader(Options(Connection("m", "c"), Query(table, ())), Pinned(12, 1000))
    assert list(reader.pushFilters(conditions)) == []
    tasks = [task.value for task in reader.partitions()]
    assert sorted(partition for task in tasks for partition in task) == partitions


@pytest.mark.parametrize("table", ["changes", "transactions", "history"])
def test_a_range_of_tids_ends_where_the_options_end(table: str) -> None:
    options = Options(Connection("m", "c"), Query(table, (), 90, first=10))
    reader = PushingReader(options, Pinned(12, 90))
    reader.pushFilters([GreaterThanOrEqual(TID, 5), LessThan(TID, 50)])
    query = reader._query()
    assert (query.first, query.last) == (10, 90)
    assert _tids(query) == (10, 49)


@pytest.mark.parametrize(
    ("tids", "packed", "asked"),
    [
        ((5, 49), 0, (5, 49)),
        ((5, 49), 4, (5, 49)),
        ((5, 49), 5, (0, 49)),
        ((5, 49), 60, (0, 60)),
        ((5, MAX), 4, (5, 90)),
        ((0, 49), 60, (0, 60)),
    ],
)
def test_a_range_of_changes_that_a_pack_has_reached_is_asked_as_a_whole(
    tids: tuple[int, int], packed: int, asked: tuple[int, int]
) -> None:
    query = Query("changes", (), 90, packed=packed, tids=tids)
    what = _range(query, Builder(()), Order.CHANGES)
    assert (u64(what.first), u64(what.last)) == asked


def test_what_is_pushed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Spark's explain() does not show what a Python source takes."""
    options = Options(Connection("m", "c"), Query("objects", ()))
    reader = PushingReader(options, Pinned(4, 9))
    left = StringContains(("class",), "x")
    assert list(reader.pushFilters([EqualTo(OID, 3), left])) == [left]
    (line,) = caplog.messages
    assert line == (
        f"table objects: pushed to the storage nodes: {EqualTo(OID, 3)}; left to Spark: {left}"
    )
