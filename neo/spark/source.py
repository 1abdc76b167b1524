"""The batch source of ``spark.read.format("neo")`` for PySpark 4 (docs/spark.md).

The driver asks the cluster once per ``load()``, in ``__init__``: number of partitions and one tid. Each
task joins the cluster as a read-only client and asks storage nodes directly.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from neo.spark.options import OptionError, Options, parse
from neo.spark.plan import Pinned, check_packed, deal, pin
from neo.spark.pushdown import Wanted, push
from neo.spark.reading import Query, read_task
from neo.spark.stream import ChangeReader
from neo.spark.tables import columns_of

logger = logging.getLogger("neo.spark")
# The root logger of Spark's Python workers has the level WARNING. Log loads nevertheless, because a
# session can collect the logs of its workers.
logger.setLevel(logging.INFO)

_DDL = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.bool_(): "BOOLEAN",
    pa.list_(pa.int64()): "ARRAY<BIGINT>",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


class NEODataSource(DataSource):
    """The source without filter pushdown, which works in a session that is not configured for it."""

    #: The time zone of the session, which Spark does not pass to a source.
    session_zone: str | None = None

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.parsed: Options = parse(options, self.session_zone)
        connection = self.parsed.connection
        logger.info("asking cluster %r at %s", connection.cluster, connection.masters)
        self.pinned: Pinned = pin(self.parsed)
        logger.info("table %s as of transaction %#018x", self.parsed.query.table, self.pinned.tid)

    @classmethod
    def name(cls) -> str:
        return "neo"

    def schema(self) -> str:
        columns = self.parsed.query.columns
        return ", ".join(f"`{column.name}` {_DDL[column.type]}" for column in columns)

    def reader(self, schema: StructType) -> NEOReader:
        return NEOReader(self.chosen(schema), self.pinned)

    def streamReader(self, schema: StructType) -> ChangeReader:
        return ChangeReader(self.chosen(schema))

    def chosen(self, schema: StructType) -> Options:
        """Return the options with the columns of a schema, which the application may have given."""
        try:
            columns = columns_of(self.parsed.query.table, schema.fieldNames())
        except ValueError as e:
            raise OptionError(str(e)) from None
        for field, column in zip(schema.fields, columns, strict=True):
            expected = _DDL[column.type].lower()
            if field.dataType.simpleString() != expected:
                given = field.dataType.simpleString()
                raise OptionError(f"column {column.name!r} is {expected}, not {given}")
        return replace(self.parsed, query=replace(self.parsed.query, columns=columns))


class PushingDataSource(NEODataSource):
    """The source with filter pushdown, for which :func:`neo.spark.register` configures the session."""

    def reader(self, schema: StructType) -> PushingReader:
        return PushingReader(self.chosen(schema), self.pinned)


def in_zone(zone: str) -> type[PushingDataSource]:
    """Return the source for a session's time zone, as a class, because Spark pickles the class for
    workers.
    """

    class RegisteredDataSource(PushingDataSource):
        session_zone = zone

    return RegisteredDataSource


class NEOReader(DataSourceReader):
    def __init__(self, options: Options, pinned: Pinned) -> None:
        """Raise OptionError if a pack removed requested rows."""
        check_packed(options, pinned)
        self._options = options
        self._pinned = pinned
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        wanted = self._wanted
        least, greatest = wanted.tids
        if least > greatest:
            return []
        count = self._pinned.partitions
        partitions = [partition for partition in range(count) if wanted.has(partition, count)]
        return [InputPartition(task) for task in deal(partitions, self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without partitions Spark reads one whose value is None.
        partitions, count = partition.value or (), self._pinned.partitions
        return read_task(self._options.connection, self._query(), partitions, count)

    def _query(self) -> Query:
        wanted, pinned = self._wanted, self._pinned
        return replace(
            self._options.query,
            last=pinned.tid,
            packed=pinned.packed,
            oids=wanted.oids,
            oid_range=wanted.oid_range,
            tids=wanted.tids,
        )


class PushingReader(NEOReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted, left = push(self._options.query.table, filters)
        pushed = [each for each in filters if each not in left]
        logger.info(
            "table %s: pushed to the storage nodes: %s; left to Spark: %s",
            self._options.query.table,
            ", ".join(map(str, pushed)) or "nothing",
            ", ".join(map(str, left)) or "nothing",
        )
        return left
