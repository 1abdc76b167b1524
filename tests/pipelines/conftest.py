from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neo.spark
from neo.client import NEOStorage
from tests.pipelines.exporting import copy_into
from tests.pipelines.sample import Sample, fill
from tests.zodb.fleet import Fleet

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session", params=["sqlite"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with Fleet(3, request.param) as fleet:
        yield fleet


@pytest.fixture
def storage(fleet: Fleet) -> Iterator[NEOStorage]:
    """Of an empty cluster of three storage nodes."""
    fleet.start()
    storage = fleet.storage()
    yield storage
    storage.close()


@pytest.fixture
def sample(storage: NEOStorage) -> Sample:
    """The same with the sample database in it."""
    return fill(storage)


def session(register: bool = True) -> SparkSession:
    """A small one, which fails tasks three times before it fails a job."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = str(ROOT)
    found = (
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
    if register:
        neo.spark.register(found)
    return found


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: it takes seconds to start."""
    started = session()
    yield started
    started.stop()


@pytest.fixture
def copied(sample: Sample, tmp_path: Path) -> Path:
    """The sample in a FileStorage, with the same tids."""
    path = tmp_path / "copied.fs"
    copy_into(sample.storage, path)
    return path
