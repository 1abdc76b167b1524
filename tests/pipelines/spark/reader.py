"""Reads with the format `neo`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.zodb.fleet import NAME, Fleet


class Reader:
    def __init__(self, spark: SparkSession, fleet: Fleet) -> None:
        self.spark = spark
        self.where = {"masters": fleet.masters, "cluster": NAME, "maxTasks": 2}

    def __call__(self, table: str = "objects", **options: Any) -> DataFrame:
        options = {**self.where, "table": table, **options}
        return self.spark.read.format("neo").options(**options).load()

    def stream(self, **options: Any) -> DataFrame:
        options = {**self.where, "table": "changes", **options}
        return self.spark.readStream.format("neo").options(**options).load()
