"""``python -m neo.spark.report``: what a database is made of, how it grows, and what is wrong in it.

* ``figures``: the questions, as queries of Spark
* ``reachable``: which objects nobody can reach
* ``page``, ``charts``: the answers as one HTML file; ``command``: as tables, and the command line
"""

from neo.spark.report.command import main
from neo.spark.report.figures import Report, Tables, make_report

__all__ = ["Report", "Tables", "main", "make_report"]
