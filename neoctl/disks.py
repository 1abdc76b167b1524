"""Disks of storage nodes, and whether what a tweak moves to them fits (specification 17.36)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.filesize import decimal

from neo.admin.facts import Data, disk_data
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import AskNodeDisks, AskPartitionList, CellRow, DiskRow
from neo.protocol.room import filled_disk, needed_bytes
from neo.protocol.words import counted
from neoctl.client import AdminAway, AdminClient
from neoctl.verbs import Arguments, CommandError, Reply, verb


class NodeDisks(NamedTuple):
    """What a storage node says of itself. ``size``: bytes that it keeps."""

    nid: int
    version: str
    size: int
    disks: list[DiskRow]


def ask_disks(admin: AdminClient) -> list[NodeDisks]:
    """Return the storage nodes that answer; none if master or admin node do not know the question."""
    try:
        return [NodeDisks(*row) for row in admin.ask(AskNodeDisks()).row_list]
    except (AdminAway, ErrorAnswer):
        return []


@verb("print disks", "bytes that each storage node keeps, free bytes of its disks, its version")
def print_disks(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``disks``, see :func:`neo.admin.facts.disk_data`."""
    rows = disk_data(ask_disks(admin))
    lines = [
        " | ".join([row["nid"], decimal(row["bytes"]), *map(_free, row["disks"]), row["version"]])
        for row in rows
    ]
    return Reply("\n".join(lines) or "No storage node tells its disks.", {"disks": rows})


def _free(disk: Data) -> str:
    what = "" if disk["what"] == "database" else f" for {disk['what']}"
    return f"{decimal(disk['free'])} of {decimal(disk['total'])} free{what}"


# -- what a tweak moves ------------------------------------------------------------------------------


class Moved(NamedTuple):
    """What a node gets: cells, and their bytes, estimated from those of the nodes that have them."""

    nid: int
    cells: int
    size: int


def find_moves(
    before: Sequence[Sequence[CellRow]],
    after: Sequence[Sequence[CellRow]],
    sizes: Mapping[int, int],
) -> list[Moved]:
    """Return what each node gets that has more cells after than before. ``sizes``: bytes of nodes."""
    holders = [[nid for nid, _ in row] for row in before]
    gains = [
        (partition, nid)
        for partition, row in enumerate(after)
        for nid, _ in row
        if nid not in holders[partition]
    ]
    cells = Counter(nid for _, nid in gains)
    size = needed_bytes(holders, gains, sizes)
    return [Moved(nid, count, size[nid]) for nid, count in sorted(cells.items())]


def find_full(moves: Sequence[Moved], disks: Mapping[int, NodeDisks]) -> list[str]:
    """Return a sentence for each node whose disk what it gets would fill."""
    full = []
    for move in moves:
        known = disks.get(move.nid)
        disk = filled_disk(move.size, known.disks) if known is not None else None
        if disk is not None:
            what, free, total = disk
            full.append(
                f"{format_nid(move.nid)} would get about {decimal(move.size)}, and {decimal(free)} of"
                f" {decimal(total)} are free on the disk of its {what}"
            )
    return full


class Fit(NamedTuple):
    """Whether what a tweak moves fits. ``full``: sentences about disks that it would fill."""

    moves: list[Moved]
    full: list[str]
    disks: dict[int, NodeDisks]

    @property
    def hint(self) -> str:
        """Say how many bytes each node gets, if that is known."""
        if not self.disks:
            return ""
        words = [
            f"{format_nid(move.nid)} gets {counted(move.cells, 'cell')}, about {decimal(move.size)}"
            for move in self.moves
        ]
        return "; ".join([*words, *self.full])

    @property
    def data(self) -> list[Data]:
        return [{"nid": format_nid(m.nid), "cells": m.cells, "bytes": m.size} for m in self.moves]


NOTHING_MOVES = Fit([], [], {})


def fit(admin: AdminClient, after: Sequence[Sequence[CellRow]]) -> Fit:
    """Return whether a partition table fits on the disks of the nodes that get cells by it."""
    before = admin.ask(AskPartitionList(0, 0, None)).row_list
    disks = {row.nid: row for row in ask_disks(admin)}
    moves = find_moves(before, after, {nid: row.size for nid, row in disks.items()})
    return Fit(moves, find_full(moves, disks), disks)


def refuse_full(found: Fit) -> None:
    """Raise CommandError if a disk would be filled."""
    if found.full:
        raise CommandError(
            "; ".join(found.full), "free space, name other nodes, or, if you know better: --force"
        )
