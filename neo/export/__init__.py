"""``neoexport``: write a database as Parquet files for Spark, without access to the storage
(docs/spark.md).

* ``command``: the command line; ``exporting``: one export from plan to publication
* ``plan``: which transactions an export takes, and why it may be refused
* ``folder``: the snapshots that readers see, and their atomic replacement
* ``reader``: sorted revisions of a storage that only lists transactions; ``spill``: sorting on disk
* ``segment``: revisions → rows; ``merging``: new rows and those of the last export → the tables
* ``workers``: processes, each of which writes one group after another, and reads it from a cluster

All but ``command`` needs pyarrow.
"""

from neo.export.command import main

__all__ = ["main"]
