"""Sets of cells in the arguments of an operation: ``4:0-3,7;5:8`` are partitions 0 to 3 and 7 on S4, and
8 on S5 (specification 27.72)."""

from __future__ import annotations

from collections.abc import Collection

from neo.topology.partitions import MAX_PARTITIONS

Cell = tuple[int, int]
"""Partition and node."""


def encode_cells(cells: Collection[Cell]) -> str:
    """Return the text, in the order of nodes and partitions."""
    nodes: dict[int, list[int]] = {}
    for partition, nid in sorted(set(cells)):
        nodes.setdefault(nid, []).append(partition)
    return ";".join(f"{nid}:{_ranges(nodes[nid])}" for nid in sorted(nodes))


def _ranges(numbers: list[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def decode_cells(text: str) -> list[Cell]:
    """Return the cells, in the order of the text. Raise ValueError, also for more partitions than a
    cluster can have."""
    cells: list[Cell] = []
    for part in filter(None, text.split(";")):
        nid, _, ranges = part.partition(":")
        for each in ranges.split(","):
            words = each.split("-")
            first, last = int(words[0]), int(words[-1])
            if not 0 <= first <= last < MAX_PARTITIONS:
                raise ValueError(f"{each!r} are no partitions")
            cells += [(number, int(nid)) for number in range(first, last + 1)]
    return cells
