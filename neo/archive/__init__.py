"""The format of an archive: copies of a cluster's database in files (specification 28.1 to 28.20).

* ``format``: the bytes of a partition's file; ``manifest``: what a copy consists of; ``chain``: which
  copies restore a moment. These are pure.
* ``disk``: files that become durable before they get their name; ``folder``: the copies in a folder
* ``writer``, ``reader``: the file of a partition, in memory of a few blocks; ``verify``: all files

The package knows no cluster: storage nodes give the rows of their partitions and take them back.
"""
