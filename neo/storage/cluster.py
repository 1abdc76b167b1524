"""What a database remembers of the cluster it belongs to."""

from __future__ import annotations

from collections.abc import Iterable

from neo.protocol.enums import CellState
from neo.storage.backend.api import Backend
from neo.topology.partitions import PartitionTable


def check_database(backend: Backend, cluster: str) -> int | None:
    """The node id that the database remembers. Raises ValueError if it is of another cluster."""
    name = backend.get_config("name")
    if name is None:
        backend.set_config("name", cluster)
    elif name != cluster:
        raise ValueError(
            f"the database belongs to cluster {name!r}, not {cluster!r}: check the settings"
            " 'cluster' and 'database', or erase it with --reset"
        )
    nid = backend.get_config("nid")
    return None if nid is None else int(nid)


#: A row of ``config``, of our own.
_GREATEST_NID = "_greatest_nid"


def greatest_nid(backend: Backend) -> int:
    """Of all storage nodes that this one ever heard of."""
    return int(backend.get_config(_GREATEST_NID) or 0)


def remember_nids(backend: Backend, nids: Iterable[int]) -> bool:
    """Whether one of them is new, so that something has to be stored."""
    greatest = max(nids, default=0)
    is_new = greatest > greatest_nid(backend)
    if is_new:
        backend.set_config(_GREATEST_NID, str(greatest))
    return is_new


def load_partitions(backend: Backend, table: PartitionTable) -> None:
    """The partition table as this node last heard of it, if it ever did."""
    ptid = backend.get_config("ptid")
    if ptid is None:
        return
    rows: list[list[tuple[int, CellState]]] = [[] for _ in range(backend.partition_count())]
    for partition, nid, tid in backend.cells():
        state = CellState.OUT_OF_DATE if tid >= 0 else CellState(-tid)
        rows[partition].append((nid, state))
    table.load(int(ptid), int(backend.get_config("replicas") or 0), rows)
