"""``python -m tests.bench.spark``: what Spark reads out of a cluster in a second, against one process.

* ``database``: what is read; ``readers``: one process; ``driver``: one session of Spark
* ``run``: rounds in which each reads the same; ``report``: figures and targets
"""
