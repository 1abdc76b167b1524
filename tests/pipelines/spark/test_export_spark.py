"""The two ways from a database to Spark give the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from neo.export.plan import DEFAULT_COLUMNS
from neo.spark.tables import TABLES
from tests.pipelines.exporting import change, export, uri
from tests.pipelines.sample import Sample
from tests.zodb.fleet import NAME, Fleet


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=str)


def test_the_records_themselves_are_equal_too(
    spark: SparkSession, fleet: Fleet, sample: Sample, tmp_path: Path
) -> None:
    columns = ",".join(column.name for column in TABLES["objects"])
    export(uri(fleet), tmp_path, "--columns", columns)
    for table in ("objects", "history", "changes"):
        names = [column.name for column in TABLES[table]]
        reader = spark.read.format("neo").options(masters=fleet.masters, cluster=NAME, table=table)
        direct = reader.option("columns", ",".join(names)).load()
        parquet = spark.read.parquet(str(tmp_path / table))
        assert parquet.dtypes == direct.dtypes and "data" in parquet.columns
        assert rows(parquet) == rows(direct)


def test_the_source_and_the_export_are_equal_row_by_row(
    spark: SparkSession, fleet: Fleet, sample: Sample, tmp_path: Path
) -> None:
    left_out = {c.name for c in TABLES["objects"]}.difference(DEFAULT_COLUMNS)
    export(uri(fleet), tmp_path)
    planned = spark.read.parquet(str(tmp_path / "history"))
    kept = {t: spark.read.parquet(str((tmp_path / t).resolve())) for t in TABLES}
    before = {table: rows(frame) for table, frame in kept.items()}
    for number in range(2):
        for table, columns in TABLES.items():
            names = [column.name for column in columns if column.name not in left_out]
            direct = (
                spark.read.format("neo")
                .options(masters=fleet.masters, cluster=NAME, table=table, maxTasks=2)
                .option("columns", ",".join(names))
                .load()
            )
            parquet = spark.read.parquet(str(tmp_path / table))
            assert parquet.dtypes == direct.dtypes
            assert rows(parquet) == rows(direct), table
        change(sample.storage, number)
        export(uri(fleet), tmp_path)
        if not number:
            assert {table: rows(frame) for table, frame in kept.items()} == before
    # A query on files that are gone fails; it never mixes two snapshots.
    with pytest.raises(Exception, match="does not exist"):
        planned.collect()
