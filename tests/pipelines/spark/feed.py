"""A query on the change feed that keeps its place: in a session of a test, or in a process that a test
kills: ``python -m tests.pipelines.spark.feed MASTERS CLUSTER FOLDER FOLDER``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.pipelines.spark.gates import Gate
from tests.support.patience import PATIENCE_SECONDS, wait_until

ROWS_PER_BATCH = 80
#: Spark gives the process that reads offsets 10 s to connect back (PROCESS_WAIT_TIMEOUT_MS, without a
#: setting). A machine may stand still for 20 s, but not at each of so many attempts.
STARTS = 5


def follow(
    start: Callable[[], StreamingQuery], until: Callable[[StreamingQuery], object]
) -> StreamingQuery:
    """Start a query, and call ``until``, which raises what the query failed with. Begin again, as an
    operator would, if Spark's process did not connect back in time."""
    for attempt in range(1, STARTS + 1):
        query = start()
        try:
            until(query)
            return query
        except StreamingQueryException as e:
            if "Python worker failed to connect back" not in str(e) or attempt == STARTS:
                raise
    raise AssertionError("no attempt")


def to_its_end(start: Callable[[], StreamingQuery]) -> None:
    """Run a query that ends when it has read everything."""

    def end(query: StreamingQuery) -> None:
        assert query.awaitTermination(PATIENCE_SECONDS)

    follow(start, end)


def failure(query: StreamingQuery) -> None:
    """Raise what the query failed with, if it failed."""
    if (error := query.exception()) is not None:
        raise error


def start(
    spark: SparkSession, where: dict[str, Any], folder: Path, **trigger: Any
) -> StreamingQuery:
    """From the place in ``folder`` on; rows wait at its gate after the first batch."""
    frame = (
        spark.readStream.format("neo")
        .options(**where, table="changes", columns="oid,tid", maxRowsPerBatch=ROWS_PER_BATCH)
        .load()
    )
    gated = frame.mapInArrow(Gate(folder, after="place/commits/0"), frame.schema)
    return (
        gated.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "place"))
        .trigger(**trigger)
        .start(str(folder / "rows"))
    )


def batches(folder: Path) -> list[list[tuple[int, int]]]:
    """What is in the files that the log of the sink names: (oid, tid) of each batch."""
    found = []
    logs = [path for path in (folder / "rows/_spark_metadata").iterdir() if path.name.isdigit()]
    for log in sorted(logs, key=lambda path: int(path.name)):
        names = [json.loads(line)["path"] for line in log.read_text().splitlines()[1:]]
        tables = [pq.ParquetFile(name.removeprefix("file://")).read() for name in names]
        found.append([(r["oid"], r["tid"]) for table in tables for r in table.to_pylist()])
    return found


def main(masters: str, cluster: str, *folders: str) -> None:
    """Two queries: one that has read everything and waits for more, and one whose gate is closed."""
    from tests.pipelines.spark.conftest import session

    where = {"masters": masters, "cluster": cluster, "maxTasks": 2}
    # The format is known without registration.
    spark = session(register=False)
    between, inside = map(Path, folders)
    often = {"processingTime": "0 seconds"}
    follow(lambda: start(spark, where, between, **often), StreamingQuery.processAllAvailable)
    follow(
        lambda: start(spark, where, inside, **often),
        lambda query: Gate(inside).wait_for_somebody(lambda: failure(query)),
    )
    wait_until(lambda: not inside.exists(), f"a signal, for {PATIENCE_SECONDS:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
