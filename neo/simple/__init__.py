"""A whole small NEO cluster on one machine, in one command or one ``with`` block.

::

    with Cluster(folder, storages=2, partitions=12) as cluster:
        db = ZODB.DB(open_storage(cluster.uri))

The processes are the real ones, and ``neo.conf`` in the folder is what they read: each can also be
started by hand. Nothing here is imported by a node.
"""

from neo.simple.cluster import Cluster, ClusterError
from neo.simple.command import main

__all__ = ["Cluster", "ClusterError", "main"]
