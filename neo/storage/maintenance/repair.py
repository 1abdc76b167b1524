"""Repair of CORRUPTED cells: nothing of what such a cell has is believed, whatever its ids.

A cell that stops being CORRUPTED is marked in the configuration row ``_erase`` (partitions, with spaces
between), in the database transaction that changes its state. When it is replicated, what it has is
erased first, and the mark goes with the last of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from neo.protocol.ids import ZERO_OID, ZERO_TID
from neo.storage.replication.replica_delete import remove

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

ROW = "_erase"
#: Rows that are deleted before others are served.
STEP_LENGTH = 200


def _marks(core: StorageNode) -> set[int]:
    return {int(word) for word in (core.backend.get_config(ROW) or "").split()}


def _set(core: StorageNode, marks: set[int]) -> None:
    core.backend.set_config(ROW, " ".join(map(str, sorted(marks))) or None)


def mark(core: StorageNode, partitions: Iterable[int]) -> None:
    """These own cells are not CORRUPTED any more."""
    marks = _marks(core)
    if not marks.issuperset(partitions := set(partitions)):
        _set(core, marks | partitions)


def marked(core: StorageNode, partition: int) -> bool:
    return partition in _marks(core)


async def erase(core: StorageNode, partition: int, last: bytes) -> None:
    """Delete all revisions and transactions up to ``last``; later ones came from clients."""
    backend = core.backend
    while rows := backend.objects_ascending(partition, ZERO_TID, ZERO_OID, last, STEP_LENGTH):
        await remove(core, partition, rows)
        await core.stored()
    while tids := backend.tids_ascending(ZERO_TID, last, STEP_LENGTH, partition):
        backend.delete_transactions(tids)
        await core.stored()
    _set(core, _marks(core) - {partition})
