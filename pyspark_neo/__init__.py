"""Make the format "neo" available without registration: Spark imports ``pyspark_*`` modules."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyspark

    from neo.spark import check_pyspark

    check_pyspark(pyspark.__version__)
    from neo.spark.source import NEODataSource

    return NEODataSource
