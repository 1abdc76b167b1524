"""A small NEO cluster on one machine, in one command or one ``with`` block.

::

    with Cluster(folder, storages=2, partitions=12) as cluster:
        db = ZODB.DB(open_storage(cluster.uri))

The processes are the real ones and read ``neo.conf`` in the folder, so each can also be started by hand.
With ``processes=False`` one process runs all nodes.
Nodes import nothing of this package.
"""

from neo.simple.cluster import Cluster, ClusterError
from neo.simple.command import main

__all__ = ["Cluster", "ClusterError", "main"]
