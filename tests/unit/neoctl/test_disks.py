"""Disks of storage nodes, and a tweak that would fill one (specification 17.36)."""

from __future__ import annotations

import json

import pytest

from neo.protocol.enums import CellState
from neo.protocol.packets import (
    AnswerNodeDisks,
    AnswerTweakPartitionTable,
    AskNodeDisks,
    TweakPartitionTable,
)
from neoctl.disks import Moved, find_moves
from tests.unit.neoctl.conftest import GB, ROWS, VERSION, Make

UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
#: S1 gets a cell of each partition that S2 and S3 have alone: two cells.
AFTER = [[*row, (1, OUT)] if (1, UP) not in row else row for row in ROWS]
TWEAK = {TweakPartitionTable: AnswerTweakPartitionTable(True, AFTER)}


def disks(free: int) -> dict[type, AnswerNodeDisks]:
    """S1 has this room; each node keeps 8 GB in four cells."""
    rows = [(nid, VERSION, 8 * GB, [("database", 90 * GB, 100 * GB)]) for nid in (2, 3)]
    first = 1, VERSION, 8 * GB, [("database", free, 100 * GB), ("contents of blobs", 2**40, 2**41)]
    return {AskNodeDisks: AnswerNodeDisks([first, *rows])}


def test_disks_are_printed(console: Make) -> None:
    ctl = console(disks(9 * GB))
    first, second, third = ctl.lines("print", "disks")
    assert first == (
        "S1 | 8.0 GB | 9.0 GB of 100.0 GB free | 1.1 TB of 2.2 TB free for contents of blobs | 0.1.0"
    )
    assert second == "S2 | 8.0 GB | 90.0 GB of 100.0 GB free | 0.1.0"
    assert ctl.data("print", "disks")["disks"][1] == {
        "nid": "S2",
        "version": VERSION,
        "bytes": 8 * GB,
        "disks": [{"what": "database", "free": 90 * GB, "total": 100 * GB}],
    }


def test_moves_are_estimated_from_the_nodes_that_have_the_cells() -> None:
    before = [[(1, UP)], [(1, UP)], [(1, UP), (2, UP)]]
    after = [[(1, UP), (3, OUT)], [(3, OUT)], [(1, UP), (2, UP)]]
    assert find_moves(before, after, {1: 30, 2: 100}) == [Moved(3, 2, 20)]
    assert find_moves(before, before, {1: 30, 2: 100}) == []


def test_bytes_are_told_before_and_after_a_tweak(console: Make) -> None:
    ctl = console({**TWEAK, **disks(90 * GB)})
    assert ctl("tweak", "-n") == 0
    assert ctl.err == "neoctl: S1 gets 2 cells, about 4.0 GB\n"
    assert ctl("tweak", "--json") == 0
    assert json.loads(ctl.out)["moves"] == [{"nid": "S1", "cells": 2, "bytes": 4 * GB}]


@pytest.mark.parametrize("free", [4 * GB, 9 * GB - 1])
def test_a_tweak_that_would_fill_a_disk_is_refused_unless_forced(console: Make, free: int) -> None:
    """A twentieth of the disk has to be left."""
    ctl = console({**TWEAK, **disks(free)})
    refusal = "S1 would get about 4.0 GB, and"
    assert ctl("tweak") == 1
    assert ctl.out.startswith(refusal) and "--force" in ctl.err
    assert TweakPartitionTable(False, []) not in ctl.admin.asked
    assert ctl("tweak", "-n") == 0
    assert refusal in ctl.err
    assert ctl("tweak", "--force") == 0
    assert TweakPartitionTable(False, []) in ctl.admin.asked


def test_nodes_that_do_not_tell_their_disks_refuse_nothing(console: Make) -> None:
    ctl = console({**TWEAK, AskNodeDisks: AnswerNodeDisks([])})
    assert ctl("tweak") == 0 and ctl.err == ""
    assert ctl.lines("print", "disks") == ["No storage node tells its disks."]
    assert ctl("flush_log", "--force") == 1
    assert ctl.out == "option --force is of tweak, replace, add, remove alone\n"
