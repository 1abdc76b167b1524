"""One Spark session: its JVM takes seconds to start and minutes to become quick, so that all tests of
this folder run in one process (tests/plan.py)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neo.spark

ROOT = Path(__file__).parents[3]


def session(register: bool = True) -> SparkSession:
    """A small one, which fails tasks three times before it fails a job."""
    # Its JVM and the workers that it starts keep the environment; tests of other folders, which run in
    # this process, too, must not find it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", str(ROOT))
        found = _started()
    if register:
        neo.spark.register(found)
    return found


def _started() -> SparkSession:
    found: SparkSession = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.session.timeZone", "UTC")
        # Of a worker that starts; a machine that is shared may need more than the default of 15.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .getOrCreate()
    )
    return found


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: it takes seconds to start."""
    started = session()
    yield started
    started.stop()
