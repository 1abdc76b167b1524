"""The client of a NEO cluster: a storage for ZODB.

>>> import ZODB
>>> from neo.client import Storage
>>> db = ZODB.DB(Storage("master1:10000 master2:10000", "mycluster"))  # doctest: +SKIP

Without a cluster, in a folder:

>>> import neo.client
>>> db = ZODB.DB(neo.client.open("/var/lib/site"))  # doctest: +SKIP
"""

from neo.client.embedded import open_folder as open
from neo.client.storage import NEOStorage, Storage

__all__ = ["NEOStorage", "Storage", "open"]
