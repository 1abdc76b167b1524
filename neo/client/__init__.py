"""The client of a NEO cluster: a storage for ZODB.

>>> import ZODB
>>> from neo.client import Storage
>>> db = ZODB.DB(Storage("master1:10000 master2:10000", "mycluster"))  # doctest: +SKIP
"""

from neo.client.storage import NEOStorage, Storage

__all__ = ["NEOStorage", "Storage"]
