"""Which own cells were complete in this database, whatever a partition table says.

Two rows of ``config`` are lists of partitions, separated by spaces. They are written in the database
transaction of the event that changes them:

* ``_announced``: cells that are complete, which the master is being told. Such a cell is OUT_OF_DATE in
  this database until the next partition table comes.
* ``_unproven``: cells that a partition table calls readable, although they were never complete in this
  database: an old copy of a disk was mounted, or the table belongs to another history.

The master learns of unproven cells when it compares replicas (AskTails), and makes them OUT_OF_DATE.
Replication then compares all that such a cell has, because its gaps may be anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence, Set

from neo.storage.backend.api import Tables
from neo.topology.partitions import PartitionTable

logger = logging.getLogger("neo.storage")

_ANNOUNCED, _UNPROVEN = "_announced", "_unproven"


class Proof:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def unproven(self) -> set[int]:
        """Return the partitions whose own cell is readable and may lack data."""
        return read_partitions(self._tables, _UNPROVEN)

    # -- replication -----------------------------------------------------------------------------

    def begin(self, partitions: Iterable[int]) -> None:
        """Note that replication of own cells begins, maybe again."""
        write_partitions(self._tables, _ANNOUNCED, self._announced().difference(partitions))

    def announce(self, partition: int) -> None:
        """Note that an own cell is complete. Call before the master is told."""
        write_partitions(self._tables, _ANNOUNCED, self._announced() | {partition})

    def _announced(self) -> set[int]:
        return read_partitions(self._tables, _ANNOUNCED)

    # -- partition tables ------------------------------------------------------------------------

    def table_replaced(self, nid: int, before: PartitionTable, table: PartitionTable) -> None:
        """Compare a new table with the one ``before``, which is empty if there was none."""
        readable = set(table.readable_by(nid))
        complete = self._announced() | set(before.readable_by(nid))
        if before.ptid is not None:
            found = readable - complete
            write_partitions(self._tables, _UNPROVEN, self.unproven() | found)
            if found:
                logger.error(
                    "partition table %s says that partitions %s can be read here, but this database was"
                    " never complete in them: it is an old copy, or of another history",
                    table.ptid,
                    ", ".join(map(str, sorted(found))),
                )
        self.cells_changed(nid, readable)

    def cells_changed(self, nid: int, readable: Iterable[int]) -> None:
        """Forget what the partition table says, too. Call when it is written to the database."""
        write_partitions(self._tables, _ANNOUNCED, self._announced().difference(readable))
        unproven = self.unproven()
        if lost := unproven.difference(readable):
            write_partitions(self._tables, _UNPROVEN, unproven - lost)
            self._tables.forget_complete(nid)

    def regroup(self, groups: Sequence[range]) -> None:
        """Take another number of partitions: ``groups`` has, for each, the former ones that it is made
        of. Cells that are announced are announced again, or compared."""
        write_partitions(self._tables, _ANNOUNCED, ())
        write_partitions(self._tables, _UNPROVEN, in_groups(self.unproven(), groups))

    # -- the master ------------------------------------------------------------------------------

    def accept(self, readable: Iterable[int]) -> None:
        """Trust all readable cells: the master has compared them, or the operator decided to start."""
        found = sorted(self.unproven().intersection(readable))
        if found:
            logger.error(
                "partitions %s are read here as the master says, but this database was never complete in"
                " them: compare them with their replicas: neoctl check",
                ", ".join(map(str, found)),
            )
        write_partitions(self._tables, _UNPROVEN, ())


def in_groups(partitions: Set[int], groups: Sequence[range]) -> list[int]:
    """Return the partitions that are made of one of these."""
    return [number for number, group in enumerate(groups) if not partitions.isdisjoint(group)]


def read_partitions(tables: Tables, row: str) -> set[int]:
    """Return the partitions that a row of ``config`` lists."""
    return {int(word) for word in (tables.get_config(row) or "").split()}


def write_partitions(tables: Tables, row: str, partitions: Iterable[int]) -> None:
    """List these partitions in a row of ``config``; delete the row if there is none."""
    tables.set_config(row, " ".join(map(str, sorted(partitions))) or None)
