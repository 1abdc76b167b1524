"""One session of Spark, in a process of its own: ``python -m tests.bench.spark.driver CORES``.

It reads orders, one JSON object in a line: ``options`` of a load, and ``columns``. It answers with the
seconds to load and read everything. Spark's own sink "noop" drops the rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

import neo.spark
from tests.bench.clients import ClientFailed

ROOT = Path(__file__).parents[3]


def session(cores: int) -> SparkSession:
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    neo.spark.register(spark)
    return spark


def main(arguments: list[str]) -> int:
    # Other output of the JVM and of Python's workers must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = session(int(arguments[0]))
    for line in sys.stdin:
        options = json.loads(line)
        begin = time.monotonic()
        frame = spark.read.format("neo").options(**options).load()
        frame.write.format("noop").mode("overwrite").save()
        print(time.monotonic() - begin, file=answers, flush=True)
    spark.stop()
    return 0


class Driver:
    """The driver's process, as its parent sees it."""

    def __init__(self, cores: int, log: Path) -> None:
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(ROOT),
        }
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.spark.driver", str(cores)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=ROOT,
                env=environment,
                text=True,
            )
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self, options: Mapping[str, Any]) -> float:
        """Read with these options. Return the seconds. Raise ClientFailed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(options) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            lines = self._log.read_text().strip().splitlines()[-5:]
            raise ClientFailed("Spark failed: " + " / ".join(lines))
        return float(answer)

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
