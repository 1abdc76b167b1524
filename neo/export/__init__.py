"""``neoexport``: a database as Parquet files, for Spark where it cannot reach the storage (SPARK).

* ``command``: the command line and its progress bar
* ``plan``: which transactions an export takes, and why it may be refused
* ``folder``: what readers see, and how it changes at once
* ``sources``: revisions of each group of partitions, sorted; ``spill``: sorts those of storages that only
  list transactions
* ``segment``: revisions → rows; ``merging``: new rows and those of the export before → the tables
* ``workers``: processes, each of which writes one group after another

All but ``command`` needs pyarrow.
"""

from neo.export.command import main

__all__ = ["main"]
