"""``neomigrate``: copy any ZODB storage into NEO, and back, with its whole history.

Only interfaces of ZODB are used, so source and destination may be any storages that provide them:
``IStorageIteration`` and ``IStorageRestoreable``. An interrupted copy resumes after a comparison of the
last transaction that both have; ``--verify`` compares all transactions.
"""

from neo.migrate.command import main
from neo.migrate.comparing import Difference, compare
from neo.migrate.copying import copy_from, starting_point
from neo.migrate.errors import MigrateError

__all__ = ["Difference", "MigrateError", "compare", "copy_from", "main", "starting_point"]
