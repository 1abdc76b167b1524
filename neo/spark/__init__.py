"""A NEO database in Spark and in Parquet (DESIGN, *Spark*).

* ``tables``: the tables and their columns; ``options``: what a user may ask
* ``rows``: revisions → Arrow batches; ``reading``: one partition of one table
* ``plan``, ``pushdown``, ``source``, ``stream``: what Spark calls
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("neo.spark")

PYSPARK = (4, 2)
#: What Spark runs if PYSPARK_PYTHON is not set.
_DEFAULT_PYTHON = "python3"


def check_pyspark(version: str) -> None:
    """Raise ImportError for a version of PySpark that has not what a source needs."""
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < PYSPARK:
        raise ImportError(
            f"the format 'neo' needs PySpark {PYSPARK[0]}.{PYSPARK[1]} or newer, this is {version}: "
            "pip install --upgrade pyspark"
        )


def register(spark: SparkSession) -> None:
    """Make the format "neo" known to a session, with filters pushed down to the storage nodes.

    Moments without a zone are of the session's time zone as it is now. Raises ImportError.
    """
    import pyspark

    check_pyspark(pyspark.__version__)
    from neo.spark.source import in_zone

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    _choose_python(spark)
    spark.dataSource.register(in_zone(spark.conf.get("spark.sql.session.timeZone") or "UTC"))


def _choose_python(spark: SparkSession) -> None:
    """Let tasks on this machine run the Python of this process; of others say what they need.

    Without PYSPARK_PYTHON Spark takes the first ``python3`` of the path, which may not have this package.
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
