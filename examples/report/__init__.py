"""``python -m examples.report``: classes, growth and defects of a database.

* ``figures``: the questions, as queries of Spark
* ``reachable``: objects that cannot be reached from the root
* ``page``, ``charts``: the answers as one HTML file; ``command``: as tables, and the command line
"""

from examples.report.command import main
from examples.report.figures import Report, Tables, make_report

__all__ = ["Report", "Tables", "main", "make_report"]
