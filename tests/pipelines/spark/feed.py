"""A query on the change feed that keeps its place: in a session of a test, or in a process that a test
kills: ``python -m tests.pipelines.spark.feed MASTERS CLUSTER FOLDER FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.pipelines.spark.gates import Gate
from tests.support.patience import PATIENCE_SECONDS, wait_until

ROWS_PER_BATCH = 80


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
    start(spark, where, between, processingTime="0 seconds").processAllAvailable()
    start(spark, where, inside, processingTime="0 seconds")
    wait_until(lambda: not inside.exists(), f"a signal, for {PATIENCE_SECONDS:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
