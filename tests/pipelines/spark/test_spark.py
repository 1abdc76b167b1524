"""Spark reads a NEO database: batches, pushdown, streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from ZODB import DB
from ZODB.utils import u64

import pyspark_neo
from neo.client.history.scan import Scanner
from neo.spark import register
from neo.spark.options import OptionError, parse
from neo.spark.source import NEODataSource
from neo.spark.stream import ChangeReader
from tests.pipelines.sample import Document, Sample
from tests.pipelines.spark.feed import to_its_end
from tests.pipelines.spark.reader import Reader
from tests.zodb.fleet import NAME, Fleet


@pytest.fixture
def load(spark: SparkSession, fleet: Fleet, sample: Sample) -> Reader:
    return Reader(spark, fleet)


def test_objects_and_their_schema(load: Reader, sample: Sample) -> None:
    frame = load()
    assert frame.dtypes == [
        ("partition", "int"),
        ("oid", "bigint"),
        ("tid", "bigint"),
        ("timestamp", "timestamp"),
        ("class", "string"),
        ("size", "int"),
    ]
    found = {row.oid: (row.tid, row.size) for row in frame.collect()}
    assert found == {
        oid: (tid, len(data)) for oid, (tid, data) in sample.snapshot(sample.tids[-1]).items()
    }
    frame.createOrReplaceTempView("objects")
    spark = frame.sparkSession
    by_class = spark.sql("select class, count(*) n from objects group by class").collect()
    assert {row["class"]: row.n for row in by_class}["tests.pipelines.sample.Document"] >= 200


def test_a_frame_sees_one_snapshot_whatever_is_committed_meanwhile(
    load: Reader, sample: Sample
) -> None:
    frame = load(columns="oid,tid")
    before = sorted(frame.collect())
    db = DB(sample.storage)
    with db.transaction() as connection:
        connection.root()["later"] = Document(1)
    assert sorted(frame.collect()) == before
    assert load(columns="oid,tid").count() == len(before) + 1


def test_as_of_a_tid_and_a_time(load: Reader, sample: Sample) -> None:
    tid = sample.tids[2]
    expected = {oid: serial for oid, (serial, _) in sample.snapshot(tid).items()}
    for option in ({"tid": hex(tid)}, {"tid": str(tid)}, {"tid": f"{tid:016x}"}):
        found = load(columns="oid,tid", **option).collect()
        assert {row.oid: row.tid for row in found} == expected
    with pytest.raises(
        PySparkException, match="'timestamp': 2999-01-01 00:00:00 UTC is in the future"
    ):
        load(timestamp="2999-01-01")


def test_a_moment_is_of_the_zone_of_the_session_as_the_column_is(
    load: Reader, sample: Sample
) -> None:
    tid = sample.tids[2]
    spark = load.spark
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        register(spark)
        frame = load("transactions", columns="tid,timestamp").where(f"tid = {tid}")
        (shown,) = frame.selectExpr("cast(timestamp as string) shown").collect()
        found = load(columns="oid,tid", timestamp=shown.shown).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        register(spark)
    expected = {oid: serial for oid, (serial, _) in sample.snapshot(tid).items()}
    assert {row.oid: row.tid for row in found} == expected


def test_as_of_the_timestamp_of_each_transaction(load: Reader, sample: Sample) -> None:
    for row in load("transactions", columns="tid,timestamp").collect():
        moment = row.timestamp.isoformat()  # of the session's zone, which is UTC
        found = load(columns="oid,tid", timestamp=moment).collect()
        assert {r.oid: r.tid for r in found} == {
            oid: serial for oid, (serial, _) in sample.snapshot(row.tid).items()
        }


CONDITIONS = (
    "oid = 3",
    "oid in (1, 2, 77)",
    "partition = 4",
    "partition in (1, 2) and oid = 13",
    "oid = 1 and oid = 2",
    "oid > 20 and oid <= 31",
    "oid in (1, 2, 77) and oid >= 2",
)


@pytest.mark.parametrize("table", ["objects", "history"])
def test_pushed_filters_give_what_spark_would(load: Reader, table: str) -> None:
    frame = load(table, columns="partition,oid,tid")
    rows = [tuple(row) for row in frame.collect()]
    load.spark.createDataFrame(rows, frame.schema).createOrReplaceTempView("copied")
    for condition in CONDITIONS:
        expected = load.spark.sql(f"select * from copied where {condition}").collect()
        found = frame.where(condition)
        assert sorted(found.collect()) == sorted(expected), condition


def test_a_tid_is_pushed_into_history_and_never_into_a_snapshot(
    load: Reader, sample: Sample
) -> None:
    tid = sample.tids[3]
    history = load("history", columns="oid,tid,end_tid,seq")
    everything = history.collect()
    filters: tuple[tuple[str, Callable[[int], bool]], ...] = (
        (f"tid > {tid}", lambda t: t > tid),
        (f"tid <= {tid}", lambda t: t <= tid),
        (f"tid = {tid}", lambda t: t == tid),
    )
    for condition, keep in filters:
        assert sorted(history.where(condition).collect(), key=str) == sorted(
            (row for row in everything if keep(row.tid)), key=str
        )
    objects = load(columns="oid,tid")
    current = objects.collect()
    assert sorted(objects.where(f"tid <= {tid}").collect()) == sorted(
        row for row in current if row.tid <= tid
    )


def test_references_and_transactions(load: Reader, sample: Sample) -> None:
    objects = load(columns="oid")
    references = load("references").where("kind = 's'")
    missing = references.join(objects, references.dst == objects.oid, "left_anti").collect()
    assert [row.src for row in missing] == [5000]
    assert sorted(row.tid for row in load("transactions").collect()) == sample.tids


def test_a_schema_of_the_user_prunes_columns(
    load: Reader, spark: SparkSession, fleet: Fleet
) -> None:
    reader = spark.read.format("neo").options(masters=fleet.masters, cluster=NAME)
    frame = reader.schema("tid bigint, refs array<bigint>").load()
    assert frame.columns == ["tid", "refs"]
    assert frame.count()
    with pytest.raises(PySparkException, match="column 'oid' is bigint, not string"):
        reader.schema("oid string").load().count()


WRONG_OPTIONS: tuple[tuple[dict[str, str], str], ...] = (
    ({"table": "nothing"}, "there is no table 'nothing'"),
    ({"columns": "oid,wrong"}, "no column 'wrong'"),
    ({"tid": "yesterday"}, "option 'tid': 'yesterday' is not a tid"),
    ({"tid": "0x7fffffffffffffff"}, "later than the last transaction"),
    ({"onerror": "ignore"}, "is not null or fail"),
    ({"colums": "oid"}, "there is no option 'colums'"),
    ({"cluster": "other", "waitTimeout": "1"}, "invalid cluster name"),
)


def test_wrong_options_are_told(load: Reader) -> None:
    for options, reason in WRONG_OPTIONS:
        with pytest.raises(PySparkException, match=reason):
            load(**{"table": "objects", **options}).count()


def test_spark_finds_the_format_by_name() -> None:
    """So does the driver of tests.pipelines.spark.feed, which registers nothing."""
    assert pyspark_neo.DefaultSource is NEODataSource
    with pytest.raises(AttributeError):
        getattr(pyspark_neo, "other")  # noqa: B009


def feed(load: Reader, folder: Path, **options: Any) -> list[tuple[int, int]]:
    """What one run of a query that keeps its place in ``folder`` appends to it."""
    writer = (
        load.stream(columns="oid,tid", **options)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "place"))
        .trigger(availableNow=True)
    )
    to_its_end(lambda: writer.start(str(folder / "rows")))
    rows = load.spark.read.parquet(str(folder / "rows")).collect()
    return sorted((row.oid, row.tid) for row in rows)


def test_a_stream_gets_every_revision_once_and_goes_on_where_it_ended(
    load: Reader, sample: Sample, tmp_path: Path
) -> None:
    assert feed(load, tmp_path, maxRowsPerBatch=60) == sorted(sample.revisions)
    assert feed(load, tmp_path, maxRowsPerBatch=60) == sorted(sample.revisions)
    db = DB(sample.storage)
    with db.transaction() as connection:
        connection.root()["more"] = Document(7)
    sample.read_back()
    assert feed(load, tmp_path) == sorted(sample.revisions)


def test_batches_hold_whole_transactions(load: Reader, sample: Sample) -> None:
    options = {**load.where, "table": "changes"}
    reader = ChangeReader(parse({name: str(value) for name, value in options.items()}))
    start = reader.initialOffset()
    ends = []
    while (end := reader.latestOffset(start, ReadMaxRows(1))) != start:
        ends.append(int(end["tid"], 16))
        start = end
    assert ends == sample.tids
    assert reader.partitions(start, start) == []
    last = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert int(last["tid"], 16) == u64(Scanner(sample.storage).last_tid())


def test_a_stream_of_a_table_that_does_not_change_is_refused(load: Reader) -> None:
    """Objects are what a load reads by default, and would have deleted ones as rows of nothing."""
    for table in "references", "objects":
        with pytest.raises(OptionError, match=f"a stream reads changes, not {table}; set table="):
            ChangeReader(parse({"masters": "m", "cluster": "c", "table": table}))
    with pytest.raises(PySparkException, match="a stream reads changes, not references"):
        load.stream(table="references").writeStream.format("noop").start().awaitTermination(60)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"startingTid": "5"}, "'startingTid': table 'objects' is as of one transaction"),
        (
            {"startingTid": "5", "table": "references"},
            "'startingTid': table 'references' is as of one",
        ),
        ({"timestamp": "9999-12-31T23:59:59-05:00"}, "'timestamp': '9999.* is no time"),
        ({"timestamp": "yesterday"}, "'timestamp': 'yesterday' is not a moment in ISO 8601"),
    ],
)
def test_options_without_meaning_are_told(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse({"masters": "m", "cluster": "c", **options})
