"""Find objects that cannot be reached from the root.

There are two algorithms. One runs on the driver with arrays: a few times 16 bytes per edge and 8 per
object; the depth of the graph hardly matters. The other uses joins in Spark: no memory on the driver,
but some jobs per level of the graph. With 370,000 edges the driver is six times faster, and only it
copes with a linked list of a million objects. So joins are for graphs that exceed the driver's memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

#: Edges that the driver holds: 3 GB at worst, and less than Spark's limit for collected data (1 GB).
DRIVER_EDGES = 50_000_000
ROOT = 0


def unreachable(
    spark: SparkSession, oids: DataFrame, edges: DataFrame, most: int = DRIVER_EDGES
) -> DataFrame:
    """Return the oids (``oid``) that no path of edges (``src``, ``dst``) joins to the root.

    ``most``: the number of edges that the driver may hold.
    """
    edges = edges.select("src", "dst").persist()
    try:
        if edges.count() <= most:
            return _on_driver(spark, oids, edges)
        return _with_joins(oids, edges)
    finally:
        edges.unpersist()


def _on_driver(spark: SparkSession, oids: DataFrame, edges: DataFrame) -> DataFrame:
    objects = np.sort(oids.select("oid").toArrow()["oid"].to_numpy())
    found = edges.toArrow()
    seen = reached(objects, found["src"].to_numpy(), found["dst"].to_numpy())
    return spark.createDataFrame(pa.table({"oid": pa.array(objects[~seen], pa.int64())}))


def reached(objects: Any, src: Any, dst: Any) -> Any:
    """Return for each sorted oid whether it can be reached; ignore edges to other oids."""
    seen = np.zeros(len(objects), bool)
    begin, end = (np.searchsorted(objects, ends) for ends in (src, dst))
    known = _equal(objects, begin, src) & _equal(objects, end, dst)
    begin, end = begin[known], end[known]
    order = np.argsort(begin, kind="stable")
    end = end[order]
    # The edges of object i are those from first[i] to first[i + 1].
    first = np.searchsorted(begin[order], np.arange(len(objects) + 1))
    front = np.flatnonzero(objects == ROOT)
    while len(front):
        seen[front] = True
        counts = first[front + 1] - first[front]
        jumps = np.repeat(first[front] - np.cumsum(counts) + counts, counts)
        front = np.unique(end[jumps + np.arange(len(jumps))])
        front = front[~seen[front]]
    return seen


def _equal(objects: Any, places: Any, values: Any) -> Any:
    inside = places < len(objects)
    return inside & (objects[np.where(inside, places, 0)] == values) if len(objects) else inside


def _with_joins(oids: DataFrame, edges: DataFrame) -> DataFrame:
    front = oids.where(F.col("oid") == ROOT).select("oid").localCheckpoint()
    seen = front
    # Without a checkpoint, the plan of a round would contain those of all earlier rounds.
    while not front.isEmpty():
        targets = edges.join(front, edges.src == front.oid, "left_semi").select(
            F.col("dst").alias("oid")
        )
        front = targets.distinct().join(seen, "oid", "left_anti").localCheckpoint()
        seen = seen.unionByName(front).localCheckpoint()
    return oids.select("oid").join(seen, "oid", "left_anti").localCheckpoint()
