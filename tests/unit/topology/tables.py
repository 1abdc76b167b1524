"""Partition tables of every kind, and what a tweak makes of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from hypothesis import strategies as st

from neo.protocol.enums import CellState
from neo.protocol.packets import CellChange
from neo.topology.partitions import PartitionTable
from neo.topology.tweak import tweak

UP, OUT, FEEDING, CORRUPTED, DISCARDED = (
    CellState.UP_TO_DATE,
    CellState.OUT_OF_DATE,
    CellState.FEEDING,
    CellState.CORRUPTED,
    CellState.DISCARDED,
)
Path = tuple[str, ...]
Nodes = Mapping[int, Path]
Rows = list[dict[int, CellState]]

NIDS = st.integers(1, 7)
STATES = st.sampled_from([UP, OUT, FEEDING, CORRUPTED])
READABLE_ROWS = st.lists(
    st.builds(
        lambda row, nid, state: row | {nid: state},
        st.dictionaries(NIDS, STATES, max_size=4),
        NIDS,
        st.sampled_from([UP, FEEDING]),
    ),
    min_size=1,
    max_size=8,
)
#: Rooms, machines, disks; some nodes say less, or nothing.
PATHS = st.lists(st.sampled_from("ab"), max_size=3).map(tuple)
NODES = st.dictionaries(NIDS, PATHS, min_size=1, max_size=6)
FLAT_NODES = st.sets(NIDS, min_size=1, max_size=6).map(lambda nids: dict.fromkeys(nids, ()))
REPLICAS = st.integers(0, 3)


def readable(row: Mapping[int, CellState]) -> set[int]:
    return {nid for nid, state in row.items() if state in (UP, FEEDING)}


def cells(row: Mapping[int, CellState]) -> set[int]:
    """Nodes that have the partition, or will."""
    return {nid for nid, state in row.items() if state in (UP, OUT)}


def spread(table: PartitionTable, nodes: Iterable[int]) -> int:
    """Between the greatest number of cells on a node and the least."""
    numbers = [sum(nid in cells(row) for row in table.rows) for nid in nodes]
    return max(numbers) - min(numbers)


def new_cells(changes: Iterable[CellChange]) -> int:
    return sum(state is OUT for _, _, state in changes)


def loaded(rows: Rows, replicas: int) -> PartitionTable:
    table = PartitionTable()
    table.load(1, replicas, [list(row.items()) for row in rows])
    return table


def apply(table: PartitionTable, changes: list[CellChange], replicas: int | None = None) -> None:
    assert table.ptid is not None
    table.change(table.ptid + 1, table.replicas if replicas is None else replicas, changes)


def tweaked(rows: Rows, nodes: Nodes, replicas: int, keep: Collection[int] = ()) -> PartitionTable:
    table = loaded(rows, replicas)
    apply(table, tweak(table, nodes, replicas, keep))
    return table
