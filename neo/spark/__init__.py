"""A NEO database in Spark and in Parquet (DESIGN, *Spark*).

* ``tables``: the tables and their columns; ``options``: what a user may ask
* ``rows``: revisions → Arrow batches; ``reading``: one partition of one table
* ``plan``, ``pushdown``, ``source``, ``stream``: what Spark calls
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format "neo" known to a session, with filters pushed down to the storage nodes."""
    from neo.spark.source import PushingDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PushingDataSource)
