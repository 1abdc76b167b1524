"""``neomigrate``: copy any ZODB storage into NEO, and back, with its whole history.

Only ZODB's interfaces are used, so that both ends may be any storage that has them: the source
``IStorageIteration``, the destination ``IStorageRestoreable``. An interrupted copy goes on where it
stopped, after a comparison of the last transaction that both have; ``--verify`` compares all.
"""

from neo.migrate.command import main
from neo.migrate.comparing import Difference, compare
from neo.migrate.copying import copy_from, starting_point
from neo.migrate.errors import MigrateError

__all__ = ["Difference", "MigrateError", "compare", "copy_from", "main", "starting_point"]
