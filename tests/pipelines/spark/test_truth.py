"""What Spark reads is what is in the tables of the storage nodes, and what ZODB loads; also from nodes
that know nothing but protocol version 1."""

from __future__ import annotations

import random
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from ZODB.serialize import get_refs, referencesf
from ZODB.utils import p64, u64

from neo.client.history.scan import Scanner
from neo.spark.reading import Connection, Query, read_task
from neo.spark.tables import columns_of
from tests.pipelines.sample import Sample, fill
from tests.pipelines.spark.reader import Reader
from tests.support.mariadb import running_server, schema
from tests.zodb.fleet import NAME, Fleet

Row = tuple[Any, ...]
Select = Callable[[str], list[Row]]


@pytest.fixture
def load(spark: SparkSession, fleet: Fleet, sample: Sample) -> Reader:
    return Reader(spark, fleet)


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def nodes(request: pytest.FixtureRequest) -> Iterator[tuple[Fleet, Select]]:
    """A cluster, and what asks the databases of its nodes, of which each row is in one."""
    with ExitStack() as stack:
        server = stack.enter_context(running_server()) if request.param == "mariadb" else None
        fleet = stack.enter_context(Fleet(3, request.param, server))

        def ask(database: str, statement: str) -> list[Row]:
            if server is not None:
                return server.query(f"USE {schema(database)}", statement)
            connection = stack.enter_context(closing(sqlite3.connect(database)))
            return connection.execute(statement).fetchall()

        def select(statement: str) -> list[Row]:
            return sorted(row for name in fleet.databases for row in ask(name, statement))

        yield fleet, select


def record(compression: int, value: bytes) -> bytes:
    return zlib.decompress(value) if compression else value


_CURRENT = (
    "SELECT o.oid, o.tid, d.compression, d.value FROM obj o JOIN data d ON d.id=o.data_id"
    " WHERE o.tid=(SELECT MAX(n.tid) FROM obj n WHERE n.oid=o.oid AND n.tid<={})"
)
_HISTORY = (
    "SELECT oid, tid, LEAD(tid) OVER later, ROW_NUMBER() OVER later, data_id IS NULL FROM obj"
    " WINDOW later AS (PARTITION BY oid ORDER BY tid)"
)


def test_all_tables_equal_those_of_the_storage_nodes(
    spark: SparkSession, nodes: tuple[Fleet, Select]
) -> None:
    fleet, select = nodes
    fleet.start()
    sample, load = fill(fleet.storage()), Reader(spark, fleet)
    tid = sample.tids[3]
    columns = {
        "objects": "oid,tid,data",
        "history": "oid,tid,end_tid,seq,deleted",
        "transactions": "tid,user,description,oids",
        "references": "src,src_tid,dst,kind",
    }
    now = u64(Scanner(sample.storage).last_tid())
    found = {name: load(name, columns=names).collect() for name, names in columns.items()}
    before = load("objects", columns="oid,tid,data", tid=tid).collect()
    sample.storage.close()
    fleet.stop()
    for at, rows in ((now, found["objects"]), (tid, before)):
        current = [(o, t, record(c, value)) for o, t, c, value in select(_CURRENT.format(at))]
        assert sorted((row.oid, row.tid, bytes(row.data)) for row in rows) == current
    assert sorted(map(tuple, found["history"]), key=str) == sorted(
        ((*row[:4], bool(row[4])) for row in select(_HISTORY)), key=str
    )
    statement = "SELECT tid, user, description, oids FROM trans"
    assert [
        (t.tid, t.user, t.description, sorted(t.oids)) for t in sorted(found["transactions"])
    ] == [
        (t, user.decode(), text.decode(), sorted(u64(o[i : i + 8]) for i in range(0, len(o), 8)))
        for t, user, text, o in select(statement)
    ]
    assert sorted(row[:3] for row in map(tuple, found["references"]) if row[3] == "s") == sorted(
        (oid, serial, u64(target))
        for oid, serial, compression, value in select(_CURRENT.format(now))
        if oid != 5001  # which is no pickle
        for target, _ in get_refs(record(compression, value))
    )


def test_a_sample_is_what_zodb_loads(load: Reader, sample: Sample) -> None:
    found = {row.oid: row for row in load(columns="oid,tid,data,refs,error").collect()}
    for oid in random.Random(1).sample(sorted(found), 40):
        data, serial = sample.storage.load(p64(oid))
        row = found[oid]
        assert (bytes(row.data), row.tid) == (data, u64(serial))
        if row.error is None:
            assert sorted(row.refs) == sorted(map(u64, referencesf(data)))


def test_before_and_after_a_pack(load: Reader, sample: Sample) -> None:
    tid = sample.tids[2]
    old = load(columns="oid,tid", tid=tid)
    expected = {oid: serial for oid, (serial, _) in sample.snapshot(tid).items()}
    assert {row.oid: row.tid for row in old.collect()} == expected
    sample.storage.pack(time.time(), referencesf, gc=False)
    for frame in (old, load("changes", startingTid=tid)):
        with pytest.raises(PySparkException, match="the database was packed up to"):
            frame.collect()
    now = {oid: t for oid, (t, _) in sample.snapshot(sample.tids[-1]).items()}
    assert {row.oid: row.tid for row in load(columns="oid,tid").collect()} == now


# -- storage nodes of other implementations -------------------------------------------------------


@pytest.fixture(scope="module")
def foreign() -> Iterator[Fleet]:
    with Fleet(3, "sqlite", foreign=True) as fleet:
        yield fleet


def test_nodes_that_know_only_the_specification_give_the_same_rows(
    spark: SparkSession, foreign: Fleet
) -> None:
    foreign.start()
    storage = foreign.storage()
    sample = fill(storage)
    scanner = Scanner(storage)
    nids = {nid for row in storage.replicas.view().readable for nid in row}
    assert {storage._session.storages.features(nid) for nid in nids} == {frozenset()}
    # The same columns as tasks read them, without Spark's types.
    connection = Connection(foreign.masters, NAME)
    tid = u64(scanner.last_tid())
    rows: dict[str, list[Row]] = {}
    for table, columns in (
        ("objects", ("oid", "tid", "data")),
        ("history", ("oid", "tid", "deleted", "data")),
        ("changes", ("oid", "tid", "deleted")),
    ):
        wanted = Query(table, columns_of(table, columns), tid)
        batches = read_task(connection, wanted, range(scanner.partitions), scanner.partitions)
        rows[table] = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    snapshot = sample.snapshot(tid)
    assert sorted(rows["objects"]) == sorted((oid, *row) for oid, row in snapshot.items())
    assert sorted(row[:3] for row in rows["history"]) == sorted(
        (oid, serial, data is None) for (oid, serial), data in sample.revisions.items()
    )
    assert {row[:2]: row[3] for row in rows["history"]} == sample.revisions
    assert sorted(rows["changes"]) == sorted(row[:3] for row in rows["history"])
    load = Reader(spark, foreign)
    found = sorted(map(tuple, load(columns="oid,tid").collect()))
    assert found == sorted((oid, serial) for oid, (serial, _) in snapshot.items())
    assert load(columns="oid").where("oid = 3").collect() == [(3,)]
    storage.close()
