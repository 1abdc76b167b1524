"""Applications that show what a cluster can do. They run from the source tree and are not installed.

* ``demo``: a tour of a cluster, with Python's library or your own data (docs/demo.md)
* ``report``: classes, growth and defects of a database, by Spark (docs/spark.md)
"""
