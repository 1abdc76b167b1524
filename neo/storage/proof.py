"""What this node knows of its own cells, whatever a partition table says of them.

Two rows of ``config`` are lists of partitions, separated by spaces. They are written in the database
transaction of the event that changes them:

* ``_announced``: cells that are complete, and of which the master is being told so. Such a cell is
  OUT_OF_DATE in this database until the next partition table arrives, and complete nevertheless.
* ``_unproven``: cells that a partition table calls readable, although this database was never complete
  in them: an old copy of a disk was mounted, or the table belongs to another history.

The master hears of unproven cells when it compares replicas (AskTails), and makes them OUT_OF_DATE. It
is not known where such a cell has gaps, so that everything in it is compared then.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from neo.topology.partitions import PartitionTable

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

logger = logging.getLogger("neo.storage")

_ANNOUNCED, _UNPROVEN = "_announced", "_unproven"


def _get(core: StorageNode, row: str) -> set[int]:
    return {int(word) for word in (core.backend.get_config(row) or "").split()}


def _set(core: StorageNode, row: str, partitions: set[int]) -> None:
    core.backend.set_config(row, " ".join(map(str, sorted(partitions))) or None)


def unproven(core: StorageNode) -> set[int]:
    """Partitions whose own cell may lack something, though it can be read."""
    return _get(core, _UNPROVEN)


# -- replication -----------------------------------------------------------------------------------


def begin(core: StorageNode, partitions: Iterable[int]) -> None:
    """These own cells are replicated, from now on or again."""
    _set(core, _ANNOUNCED, _get(core, _ANNOUNCED).difference(partitions))


def announce(core: StorageNode, partition: int) -> None:
    """An own cell is complete. Call before that is stored, and the master is told."""
    _set(core, _ANNOUNCED, _get(core, _ANNOUNCED) | {partition})


# -- partition tables ------------------------------------------------------------------------------


def table_replaced(core: StorageNode, before: PartitionTable, table: PartitionTable) -> None:
    """SendPartitionTable. ``before``: the own table until now, without rows if there was none."""
    assert core.nid is not None
    complete = _get(core, _ANNOUNCED) | set(before.readable_by(core.nid))
    if before.ptid is not None:
        found = set(table.readable_by(core.nid)) - complete
        _set(core, _UNPROVEN, unproven(core) | found)
        if found:
            logger.error(
                "partition table %s says that partitions %s can be read here, but this database was never"
                " complete in them: it is an old copy, or of another history",
                *(table.ptid, ", ".join(map(str, sorted(found)))),
            )
    cells_changed(core, set(table.readable_by(core.nid)))


def cells_changed(core: StorageNode, readable: Container[int]) -> None:
    """The own cells are as the partition table says; it was written to the database."""
    assert core.nid is not None
    _set(core, _ANNOUNCED, {p for p in _get(core, _ANNOUNCED) if p not in readable})
    lost = {p for p in unproven(core) if p not in readable}
    if lost:
        _set(core, _UNPROVEN, unproven(core) - lost)
        core.backend.forget_complete(core.nid)


# -- the master ------------------------------------------------------------------------------------


def accept(core: StorageNode) -> None:
    """StartOperation: the master has compared what is readable, or the operator decided."""
    found = sorted(unproven(core) & set(core.readable_partitions()))
    if found:
        logger.error(
            "partitions %s are read here as the master says, but this database was never complete in"
            " them: compare them with their replicas: neoctl check",
            ", ".join(map(str, found)),
        )
    _set(core, _UNPROVEN, set())
