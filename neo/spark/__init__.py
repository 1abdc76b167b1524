"""Read a NEO database with Spark, or as Parquet (docs/spark.md).

* ``tables``: tables and their columns; ``options``: options of a load
* ``rows``: revisions → Arrow batches; ``reading``: one partition of one table
* ``plan``, ``pushdown``, ``source``, ``stream``: the interface to Spark
"""

from __future__ import annotations

import logging
import sys
from typing import Any

logger = logging.getLogger("neo.spark")

PYSPARK = (4, 2)
#: The program that Spark runs if PYSPARK_PYTHON is not set.
_DEFAULT_PYTHON = "python3"


def check_pyspark(version: str) -> None:
    """Raise ImportError if this version of PySpark lacks the features that a source needs."""
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < PYSPARK:
        raise ImportError(
            f"the format 'neo' needs PySpark {PYSPARK[0]}.{PYSPARK[1]} or newer, this is {version}: "
            "pip install --upgrade pyspark"
        )


def register(spark: Any) -> None:
    """Register the format "neo" with a SparkSession, and enable filter pushdown.

    Times without a zone are read in the current time zone of the session. Raise ImportError.
    """
    import pyspark

    check_pyspark(pyspark.__version__)
    from neo.spark.source import in_zone

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    _choose_python(spark)
    spark.dataSource.register(in_zone(spark.conf.get("spark.sql.session.timeZone") or "UTC"))


def _choose_python(spark: Any) -> None:
    """Make local tasks run the Python of this process; log what tasks on other machines need.

    Without PYSPARK_PYTHON Spark runs the first ``python3`` of the path, which may lack this package.
    """
    from pyspark.sql.utils import is_remote

    if is_remote():
        return  # the server's Python, which its operator chose
    context = spark.sparkContext
    if context.pythonExec != _DEFAULT_PYTHON:
        return
    if context.master.startswith("local"):
        context.pythonExec = sys.executable
    else:
        logger.warning(
            "tasks run %r, which needs zodb-neo[spark] on each machine: set PYSPARK_PYTHON before the "
            "session starts if it is another one",
            context.pythonExec,
        )
