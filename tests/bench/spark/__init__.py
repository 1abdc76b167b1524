"""Measure how many rows Spark reads per second, compared with one process.

Run ``python -m tests.bench.spark``. Modules:

* ``database``: the database to read; ``readers``: one process; ``driver``: one session of Spark
* ``run``: rounds in which each reads the same data; ``report``: figures and targets
"""
