"""Processes end and cells move while Spark reads: every row comes, and comes once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64, u64, z64

from neo.protocol.enums import CellState
from neo.protocol.packets import AnswerPartitionList, AskPartitionList, TweakPartitionTable
from neo.spark.reading import Connection, Query, read_task
from neo.spark.tables import columns_of
from tests.pipelines.sample import Sample
from tests.pipelines.spark import feed
from tests.pipelines.spark.conftest import ROOT
from tests.pipelines.spark.gates import Gate, descendants, workers_of_python
from tests.support.certificates import Authority, NodeFiles
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.zodb.fleet import NAME, Fleet

OBJECTS = 600
PARTITIONS = 6


@pytest.fixture
def files(tmp_path: Path) -> NodeFiles:
    return Authority(tmp_path).node()


@pytest.fixture
def cluster(files: NodeFiles) -> Iterator[Cluster]:
    """Three storage nodes, two copies of everything, all links with TLS."""
    with Cluster(storages=3, replicas=1, partitions=PARTITIONS, **files._asdict()) as running:
        yield running


def write(storage: Any, size: int, serials: dict[int, bytes]) -> bytes:
    """One transaction: a record of so many bytes for every object; its tid."""
    meta = TransactionMetaData(description="all of them")
    storage.tpc_begin(meta)
    noise = Random(repr(serials))
    for oid in range(1, OBJECTS + 1):
        data = b"\x80\x03capp\nDoc\n.\x80\x03B" + size.to_bytes(4, "little") + noise.randbytes(size)
        storage.store(p64(oid), serials.get(oid, z64), data + b".", "", meta)
    storage.tpc_vote(meta)
    tid: bytes = storage.tpc_finish(meta)
    serials.update(dict.fromkeys(range(1, OBJECTS + 1), tid))
    return tid


def empty(cluster: Cluster, nid: int) -> None:
    """Move all cells away from a node."""
    with cluster.simple.admin() as admin:
        admin.ask(TweakPartitionTable(False, [nid]))

        def is_done() -> bool:
            answer = admin.ask(AskPartitionList(0, 0, None))
            assert isinstance(answer, AnswerPartitionList)
            rows = [dict(row) for row in answer.row_list]
            return all(
                nid not in row and set(row.values()) == {CellState.UP_TO_DATE} for row in rows
            )

        wait_until(is_done, f"node {nid} is empty")


def test_a_task_goes_on_through_writes_a_tweak_and_the_loss_of_a_node(
    cluster: Cluster, files: NodeFiles
) -> None:
    storage = cluster.storage(**files._asdict())
    serials: dict[int, bytes] = {}
    tid = u64(write(storage, 1000, serials))
    connection = Connection(cluster.simple.masters, cluster.simple.name, *files)
    columns = columns_of("objects", ["oid", "tid", "size"])
    query = Query("objects", columns, tid, page_bytes=5_000)
    batches = read_task(connection, query, range(PARTITIONS), PARTITIONS)
    rows: list[tuple[Any, ...]] = []

    def take(count: int) -> None:
        while len(rows) < count:
            rows.extend(tuple(row.values()) for row in next(batches).to_pylist())

    take(50)
    write(storage, 500, serials)
    empty(cluster, 1)
    take(250)
    cluster.simple.kill("storage2")
    take(OBJECTS)
    assert sorted(rows) == [(oid, tid, rows[0][2]) for oid in range(1, OBJECTS + 1)]
    assert list(batches) == []
    storage.close()


def test_spark_loses_a_storage_node_in_the_middle_of_a_job(
    spark: SparkSession, cluster: Cluster, files: NodeFiles, tmp_path: Path
) -> None:
    storage = cluster.storage(**files._asdict())
    serials: dict[int, bytes] = {}
    tid = u64(write(storage, 50_000, serials))
    frame = (
        spark.read.format("neo")
        .options(masters=cluster.simple.masters, cluster=cluster.simple.name, maxTasks=2)
        .options(**files._asdict(), columns="oid,tid,data", pageBytes=200_000)
        .load()
    )
    gate = Gate(tmp_path)
    gate.close()
    passed = frame.mapInArrow(gate, frame.schema).selectExpr("oid", "tid", "length(data) as size")
    rows: list[tuple[int, ...]] = []
    job = threading.Thread(target=lambda: rows.extend(map(tuple, passed.collect())))
    job.start()
    gate.wait_for_somebody()
    write(storage, 10, serials)
    cluster.simple.kill("storage1")
    gate.open()
    job.join()
    expected = [(oid, tid, rows[0][2]) for oid in range(1, OBJECTS + 1)]
    assert sorted(rows) == expected
    # The frame sees the same ever after.
    assert sorted(map(tuple, frame.selectExpr("oid", "tid", "length(data)").collect())) == expected
    storage.close()


def test_a_stream_goes_on_through_commits_and_the_loss_of_a_node(
    spark: SparkSession, cluster: Cluster, files: NodeFiles, tmp_path: Path
) -> None:
    storage = cluster.storage(**files._asdict())
    serials: dict[int, bytes] = {}
    tids = [u64(write(storage, 10, serials))]
    batches: list[list[tuple[int, int]]] = []
    stream = (
        spark.readStream.format("neo")
        .options(masters=cluster.simple.masters, cluster=cluster.simple.name, maxTasks=2)
        .options(**files._asdict(), table="changes", columns="oid,tid", maxRowsPerBatch=1000)
        .load()
    )

    def runs(query: StreamingQuery) -> None:
        def has_read() -> bool:
            feed.failure(query)
            return bool(batches)

        wait_until(has_read, "the stream runs")

    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.foreachBatch(lambda frame, _: batches.append([(r.oid, r.tid) for r in frame.collect()]))
    query = feed.follow(writer.start, runs)
    try:
        for number in range(6):
            tids.append(u64(write(storage, 10, serials)))
            if number == 2:
                cluster.simple.kill("storage1")
        wait_until(lambda: sum(map(len, batches)) >= OBJECTS * len(tids), "it has read everything")
    finally:
        query.stop()
    storage.close()
    assert sorted(row for batch in batches for row in batch) == [
        (oid, tid) for oid in range(1, OBJECTS + 1) for tid in tids
    ]
    assert len({(tid, number) for number, batch in enumerate(batches) for _, tid in batch}) == len(
        tids
    )


class Driver:
    """A driver of Spark in a process of its own, with its JVM and workers."""

    def __init__(self, fleet: Fleet, between: Path, inside: Path) -> None:
        self._log = inside / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipelines.spark.feed"]
                + [fleet.masters, NAME, str(between), str(inside)],
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def check(self) -> None:
        assert self._process.poll() is None, self._log.read_text()[-2000:]

    def kill(self) -> None:
        """``kill -9`` of all its processes, those that start others first."""
        pids = list(descendants(self._process.pid))
        self._process.kill()
        self._process.wait()
        for pid in reversed(pids):
            kill(pid)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it followed its parent


def check(folder: Path, sample: Sample) -> None:
    """Every revision once, and no transaction in two batches."""
    found = feed.batches(folder)
    assert len(found) > 2
    assert sorted(row for batch in found for row in batch) == sorted(sample.revisions)
    assert sum(len({tid for _, tid in batch}) for batch in found) == len(sample.tids)


def test_a_stream_is_killed_between_batches_inside_one_and_in_its_workers(
    spark: SparkSession, fleet: Fleet, sample: Sample, tmp_path: Path
) -> None:
    between, inside = tmp_path / "between", tmp_path / "inside"
    between.mkdir()
    inside.mkdir()
    gate = Gate(inside)
    gate.close()
    driver = Driver(fleet, between, inside)
    try:
        gate.wait_for_somebody(driver.check)
    finally:
        driver.kill()
    check(between, sample)
    assert 0 < len(feed.batches(inside)[0]) < len(sample.revisions)
    where = {"masters": fleet.masters, "cluster": NAME, "maxTasks": 2}
    # What was begun is done again; this time the workers die in it.
    (inside / "waiting").unlink()
    query = feed.follow(
        lambda: feed.start(spark, where, inside, availableNow=True),
        lambda query: gate.wait_for_somebody(lambda: feed.failure(query)),
    )
    workers = workers_of_python(spark.sparkContext._gateway.proc.pid)
    assert workers
    for pid in workers:
        kill(pid)
    gate.open()
    assert query.awaitTermination(PATIENCE_SECONDS)
    check(inside, sample)
    # The other one has nothing to read, until something is written.
    feed.to_its_end(lambda: feed.start(spark, where, between, availableNow=True))
    check(between, sample)
    meta = TransactionMetaData(description="one more")
    sample.storage.tpc_begin(meta)
    sample.storage.store(p64(7000), z64, b"more", "", meta)
    sample.storage.tpc_vote(meta)
    sample.storage.tpc_finish(meta)
    sample.read_back()
    feed.to_its_end(lambda: feed.start(spark, where, between, availableNow=True))
    check(between, sample)
