"""The queries of the report, run by Spark. The driver collects only the first rows of each answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.report.reachable import DRIVER_EDGES, unreachable
from neo.spark import register
from neo.spark.options import parse
from neo.spark.plan import pin

#: Classes that a chart distinguishes; the others are summed.
CLASSES = 8
OTHERS = "(others)"
UNREADABLE = "(unreadable)"
#: Greatest number of days in a period.
_DAYS_MAX = {"day": 1, "week": 7, "month": 31, "year": 366}
#: The end of the last revision of an object.
_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Tables:
    """A database. ``load``: return columns of a table, always as of the same transaction."""

    spark: SparkSession
    where: str
    load: Callable[[str, str], DataFrame]

    @classmethod
    def of_cluster(cls, spark: SparkSession, **options: str) -> Tables:
        """Read a cluster.

        ``options``: those of the format "neo". Raise OptionError and errors of NEOStorage.
        """
        register(spark)
        tid = f"{pin(parse(options)).tid:#018x}"

        def load(table: str, columns: str) -> DataFrame:
            reader = spark.read.format("neo").options(**(options | {"tid": tid}))
            return reader.options(table=table, columns=columns).load()

        return cls(spark, f"cluster {options['cluster']} at {options['masters']}", load)

    @classmethod
    def of_export(cls, spark: SparkSession, folder: str) -> Tables:
        """Read a folder of neoexport. Another export may run meanwhile."""
        # Resolve the link, because it moves to the next snapshot; a snapshot keeps its files.
        current = os.path.join(folder, "current")
        path = os.path.realpath(current) if os.path.islink(current) else folder

        def load(table: str, columns: str) -> DataFrame:
            return spark.read.parquet(f"{path}/{table}").select(*columns.split(","))

        return cls(spark, f"export {folder}", load)


@dataclass(frozen=True)
class Table:
    """One answer: names of columns, and rows."""

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True)
class Report:
    """``objects``, ``size``: by class, at the end of each period. ``growth``: over the last days."""

    where: str
    until: datetime
    totals: dict[str, int]
    periods: list[str]
    objects: dict[str, list[int]]
    size: dict[str, list[int]]
    classes: Table
    growth: Table
    hottest: Table
    broken: Table
    garbage: Table


@dataclass(frozen=True)
class Wanted:
    """``period``: day, week, month or year. ``days``: over which growth is measured. ``top``: rows of a
    table. ``driver_edges``: see ``reachable``.
    """

    period: str = "month"
    days: int = 30
    top: int = 15
    driver_edges: int = DRIVER_EDGES


def make_report(tables: Tables, wanted: Wanted | None = None) -> Report:
    """Run all queries. Raise ValueError for a database without transactions."""
    wanted = wanted or Wanted()
    history = _history(tables).persist()
    try:
        return _report(tables, wanted, history)
    finally:
        history.unpersist()


def _history(tables: Tables) -> DataFrame:
    """Return each revision with its class, its size, and the time until which it was current."""
    rows = tables.load("history", "oid,tid,timestamp,class,size,end_timestamp,deleted")
    return rows.select(
        "oid",
        "tid",
        "timestamp",
        F.coalesce("end_timestamp", F.lit(_FOREVER)).alias("until"),
        F.coalesce("class", F.lit(UNREADABLE)).alias("class"),
        F.coalesce("size", F.lit(0)).cast("bigint").alias("size"),
        F.when(F.col("deleted"), 0).otherwise(1).alias("exists"),
    )


def _report(tables: Tables, wanted: Wanted, history: DataFrame) -> Report:
    totals = history.agg(
        F.max(F.unix_micros("timestamp")).alias("until"),
        F.count("*").alias("revisions"),
        F.countDistinct("tid").alias("transactions"),
        F.sum("size").alias("written"),
        _total(_is_current(), F.lit(1)).alias("objects"),
        _total(_is_current(), F.col("size")).alias("bytes"),
    ).first()
    if totals is None or totals.until is None:
        raise ValueError(f"there are no transactions in {tables.where}")
    until = datetime.fromtimestamp(totals.until / 1e6, UTC)
    current = history.where(_is_current())
    classes = _table(_classes(history), max(CLASSES, wanted.top))
    top = [row[0] for row in classes.rows[:CLASSES]]
    periods, objects, size = _over_time(history, wanted.period, top)
    references = tables.load("references", "src,src_class,dst,dst_class,kind").where("kind = 's'")
    references = references.persist()
    try:
        broken = _broken(references, current, wanted.top)
        lost, garbage = _garbage(tables.spark, references, current, wanted)
    finally:
        references.unpersist()
    return Report(
        tables.where,
        until,
        {
            "objects": totals.objects,
            "bytes": totals.bytes,
            "revisions": totals.revisions,
            "bytes of all revisions": totals.written,
            "transactions": totals.transactions,
            # Their references are unknown, so the next totals ignore them.
            "unreadable objects": tables.load("objects", "oid,error").where("error is not null").count(),
            "broken references": broken[0],
            "unreachable objects": lost[0],
            "bytes of unreachable objects": lost[1],
        },
        periods,
        objects,
        size,
        Table(classes.names, classes.rows[: wanted.top]),
        _growth(history, until, wanted.days, wanted.top),
        _hottest(history, wanted.top),
        broken[1],
        garbage,
    )


def _is_current() -> Column:
    return (F.col("until") == _FOREVER) & (F.col("exists") == 1)


def _total(condition: Column, what: Any) -> Column:
    return F.sum(F.when(condition, what).otherwise(0))


def _table(rows: DataFrame, top: int) -> Table:
    return Table(tuple(rows.columns), [tuple(row) for row in rows.limit(top).collect()])


# -- classes and their growth --------------------------------------------------------------------


def _classes(history: DataFrame) -> DataFrame:
    """Return the classes of existing objects, those with the most bytes first."""
    found = (
        history.where("exists = 1")
        .groupBy("class")
        .agg(
            _total(_is_current(), F.lit(1)).alias("objects"),
            _total(_is_current(), F.col("size")).alias("bytes"),
            F.max(F.when(_is_current(), F.col("size"))).alias("largest"),
            F.count("*").alias("revisions"),
        )
    )
    per_object = F.round(F.col("revisions") / F.col("objects"), 1).alias("revisions per object")
    return found.where("objects > 0").select("*", per_object).orderBy(F.desc("bytes"), "class")


def _over_time(
    history: DataFrame, period: str, top: list[str]
) -> tuple[list[str], dict[str, list[int]], dict[str, list[int]]]:
    """Return the first days of periods, and objects and bytes by class at the ends of periods.

    A revision adds its size when it is written and subtracts it when it is replaced. An object counts
    for the class of its revision.
    """
    named = history.where("exists = 1").select(
        F.when(F.col("class").isin(top), F.col("class")).otherwise(OTHERS).alias("class"),
        _begin(period, "timestamp").alias("begin"),
        _begin(period, "until").alias("end"),
        "size",
        "until",
    )
    added = named.select("class", F.col("begin").alias("at"), F.lit(1).alias("n"), "size")
    gone = named.where(F.col("until") != _FOREVER).select(
        "class", F.col("end").alias("at"), F.lit(-1).alias("n"), (-F.col("size")).alias("size")
    )
    changes = added.unionAll(gone).groupBy("class", "at").agg(F.sum("n"), F.sum("size")).collect()
    periods = continued({row[1] for row in changes}, period)
    by_key = {(row[0], row[1]): (row[2], row[3]) for row in changes}
    objects: dict[str, list[int]] = {}
    size: dict[str, list[int]] = {}
    for name in [*top, OTHERS]:
        if any(row[0] == name for row in changes):
            steps = [by_key.get((name, at), (0, 0)) for at in periods]
            objects[name] = list(accumulate(n for n, _ in steps))
            size[name] = list(accumulate(n for _, n in steps))
    return periods, objects, size


def continued(days: Collection[str], period: str) -> list[str]:
    """Return the first days of all periods from the first of ``days`` to the last, also those without
    changes.
    """
    if not days:
        return []
    found: list[str] = []
    at, last = date.fromisoformat(min(days)), date.fromisoformat(max(days))
    while at <= last:
        found.append(at.isoformat())
        at += timedelta(days=_DAYS_MAX[period])
        if period in ("month", "year"):
            at = at.replace(day=1)
        if period == "year":
            at = at.replace(month=1)
    return found


def _begin(period: str, column: str) -> Column:
    return F.date_format(F.date_trunc(period, column), "yyyy-MM-dd")


def _growth(history: DataFrame, until: datetime, days: int, top: int) -> Table:
    """Return the classes whose bytes have grown most since ``days`` before the last transaction."""
    then = F.lit(until - timedelta(days=days))
    now = _is_current()
    before = (F.col("timestamp") <= then) & (F.col("until") > then) & (F.col("exists") == 1)

    found = history.groupBy("class").agg(
        _total(before, F.lit(1)).alias("objects before"),
        _total(now, F.lit(1)).alias("objects"),
        _total(before, F.col("size")).alias("bytes before"),
        _total(now, F.col("size")).alias("bytes"),
    )
    grown = found.withColumn("bytes more", F.col("bytes") - F.col("bytes before"))
    return _table(grown.where("`bytes more` > 0").orderBy(F.desc("bytes more"), "class"), top)


def _hottest(history: DataFrame, top: int) -> Table:
    """Return the objects that are written most often."""
    found = history.groupBy("oid").agg(
        F.max_by("class", "tid").alias("class"),
        F.count("*").alias("revisions"),
        F.sum("size").alias("bytes written"),
        F.date_format(F.max("timestamp"), "yyyy-MM-dd HH:mm").alias("last"),
    )
    return _table(found.orderBy(F.desc("revisions"), "oid"), top)


# -- what is wrong -------------------------------------------------------------------------------


def _broken(references: DataFrame, current: DataFrame, top: int) -> tuple[int, Table]:
    """Return the number of strong references to missing objects, and the first ones."""
    oids = current.select("oid")
    found = references.join(oids, references.dst == oids.oid, "left_anti").select(
        "src", "src_class", "dst", "dst_class"
    )
    return found.count(), _table(found.orderBy("src", "dst"), top)


def _garbage(
    spark: SparkSession, references: DataFrame, current: DataFrame, wanted: Wanted
) -> tuple[tuple[int, int], Table]:
    """Return objects and bytes that strong references do not join to the root, in total and by class."""
    lost = unreachable(spark, current, references, wanted.driver_edges)
    # The row whose class is NULL has the sums of all classes.
    found = (
        current.join(lost, "oid")
        .rollup("class")
        .agg(
            F.count("*").alias("objects"),
            F.sum("size").alias("bytes"),
            F.min("oid").alias("first oid"),
        )
    )
    ordered = found.orderBy(F.col("class").isNotNull(), F.desc("bytes"), "class")
    table = _table(ordered, wanted.top + 1)
    total = table.rows[0] if table.rows else (None, 0, 0)
    return (total[1], total[2] or 0), Table(table.names, table.rows[1:])
