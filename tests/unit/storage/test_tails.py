"""Bounds of what a storage node reports of the last rows of its cells."""

from __future__ import annotations

import pytest

from neo.protocol.ids import p64
from neo.protocol.packets import AskTails
from neo.storage.serving import master as serving
from tests.unit.storage.requests import commit
from tests.unit.storage.world import End, World


def test_no_more_rows_of_a_cell_are_told_than_a_node_gives_at_most(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 5.14."""
    monkeypatch.setattr(serving, "TAIL_MAX", 2)
    for ttid in (10, 12, 14):
        commit(master, client, ttid, ttid, ttid)
    ((_, _, tids, revisions),) = master.ask(AskTails([0], None, 1000)).tail_list
    assert tids == [p64(12), p64(14)]
    assert [tuple(row) for row in revisions] == [(p64(12), p64(12)), (p64(14), p64(14))]
