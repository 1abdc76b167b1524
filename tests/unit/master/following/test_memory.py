"""A backup starts again with what its storage nodes remember (specification 13)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import CellState, ClusterState, NodeState
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AskPartitionTable, AskRecovery, Error, SetClusterState
from tests.support.remote import Remote
from tests.unit.master.backup_world import BackupWorld
from tests.unit.master.cluster import tid

UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
FEEDING = CellState.FEEDING


class Restart:
    """S1 and S2 are here; S1 has partition table 8, S2 had 7 when it was lost."""

    def __init__(self, newest: Any, own: Any, claim: int | None, first: int | None = 15) -> None:
        self.world = BackupWorld()
        self.own = own
        self.one = self.world.join_storage(1)
        self.two = self.world.join_storage(2)
        # The table of the second one is the newest until the first one answers.
        self.world.remember(self.two, 7, own, None if claim is None else tid(claim))
        self.world.remember(self.one, 8, newest, None if first is None else tid(first))

    def tell_own(self) -> None:
        self.world.tell_table(self.two, 7, self.own)

    def start(self, *storages: Remote) -> None:
        assert self.world.master.cluster.state is ClusterState.VERIFYING
        self.world.verify(*(storages or (self.one, self.two)), ltid=tid(18))

    @property
    def rows(self) -> list[dict[int, CellState]]:
        return self.world.master.partitions.rows

    @property
    def backup_tid(self) -> bytes:
        found: bytes = self.world.admin().ask(AskRecovery()).result().backup_tid
        return found


def test_a_node_without_readable_cells_does_not_end_the_backup() -> None:
    """The node has the newest table and remembers nothing: it was just added, or is a clone
    (specification 13.3)."""
    world = BackupWorld()
    new = world.join_storage(2)
    world.remember(new, 8, [[(1, UP), (2, OUT)], [(1, UP), (2, OUT)]])
    old = world.join_storage(1)
    world.remember(old, 7, [[(1, UP)], [(1, UP)]], tid(15))
    world.verify(new, old, ltid=tid(18))
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP
    assert world.admin().ask(AskRecovery()).result().backup_tid == tid(15)


def test_what_is_complete_counts_for_cells_that_the_node_knows_to_be_readable() -> None:
    both = [[(1, UP), (2, UP)]] * 2
    restart = Restart(both, both, 12)
    restart.tell_own()
    restart.start()
    assert restart.rows == [{1: UP, 2: UP}] * 2
    assert restart.backup_tid == tid(12)


@pytest.mark.parametrize("known", [OUT, None], ids=["it was out of date", "it had no cell"])
def test_a_cell_whose_node_does_not_know_that_it_is_readable_is_replicated_again(
    known: CellState | None,
) -> None:
    """The node was lost when its cell became readable. What it remembers is about another cell
    (specification 4.24)."""
    both: list[Any] = [(1, UP), (2, UP)]
    own = [both[:1] if known is None else [(1, UP), (2, known)], both]
    restart = Restart([both, both], own, 17)
    restart.tell_own()
    restart.start()
    assert restart.rows == [{1: UP, 2: OUT}, {1: UP, 2: UP}]
    assert restart.backup_tid == tid(15)


def test_a_node_that_had_no_readable_cell_does_not_make_the_backup_begin_anew() -> None:
    """The node remembers nothing, as all nodes do when the begin of backup mode was interrupted
    (specification 13.4)."""
    restart = Restart([[(1, UP), (2, UP)]] * 2, [[(1, UP), (2, OUT)]] * 2, None)
    restart.tell_own()
    restart.start()
    assert restart.rows == [{1: UP, 2: OUT}] * 2
    assert restart.backup_tid == tid(15), "not 18, of which something is here"


@pytest.mark.parametrize("said", [12, 0])
def test_nothing_is_known_of_such_a_cell_that_no_other_can_replace(said: int) -> None:
    """S1 was the source of the cell, and has lost its own (specification 13.28)."""
    others: list[Any] = [[(1, UP)]] * 3
    restart = Restart([[(2, UP)], *others], [[(1, FEEDING), (2, OUT)], *others], 12)
    restart.tell_own()
    restart.start()
    assert restart.rows == [{2: UP}, *[{1: UP}] * 3]
    assert restart.backup_tid == ZERO_TID
    stop = SetClusterState(ClusterState.STOPPING_BACKUP)
    assert "S2 did not say yet" in restart.world.denied(stop)
    ptid = restart.world.master.partitions.ptid
    for _ in ("that it has the table", "what its cells are complete up to"):
        restart.world.remember(restart.two, ptid, None, tid(said))
    assert restart.backup_tid == tid(said)
    restart.world.admin().ask(stop)
    assert restart.world.master.cluster.truncate_tid == tid(said), "not later, and not before it was said"


def test_a_cell_that_feeds_one_is_dropped_as_if_its_node_were_away() -> None:
    newest = [[(1, UP), (2, FEEDING)], [(1, UP)]]
    restart = Restart(newest, [[(1, OUT), (2, OUT)], [(1, UP)]], None)
    restart.tell_own()
    restart.start()
    assert restart.rows == [{1: UP}, {1: UP}]


def test_a_node_that_is_lost_while_it_is_asked_is_asked_anew_when_it_is_back() -> None:
    both = [[(1, UP), (2, UP)]] * 2
    restart = Restart(both, both, 12)
    world = restart.world
    assert world.master.cluster.state is ClusterState.RECOVERING, "S2 has not told its table"
    restart.two.lose()
    assert world.master.cluster.state is ClusterState.RECOVERING, "all that can be read are waited for"
    two = world.join_storage(2)
    world.remember(two, 8, both, tid(12))
    restart.start(restart.one, two)
    assert restart.backup_tid == tid(12)


def test_the_operator_can_start_without_a_node_that_was_lost_while_it_was_asked() -> None:
    both = [[(1, UP), (2, UP)]] * 2
    restart = Restart(both, both, 12)
    start = SetClusterState(ClusterState.VERIFYING)
    assert "S2 must tell" in restart.world.denied(start)
    restart.two.lose()
    restart.world.admin().ask(start).result()
    restart.start(restart.one)
    assert restart.rows == [{1: UP, 2: OUT}] * 2
    assert restart.backup_tid == tid(15)


def test_a_node_that_does_not_tell_its_table_is_waited_for() -> None:
    """Specification 4.18, 4.24."""
    both = [[(1, UP), (2, UP)]] * 2
    restart = Restart(both, both, 12)
    restart.two.answer(restart.two.take(AskPartitionTable), Error(0, "damaged"))
    assert restart.world.master.cluster.state is ClusterState.RECOVERING
    node = restart.world.master.nodes.get(2)
    assert node is not None and node.state is not NodeState.RUNNING


def test_a_cluster_that_is_no_backup_asks_for_no_older_tables() -> None:
    both = [[(1, UP), (2, UP)]] * 2
    restart = Restart(both, [[(1, UP), (2, OUT)]] * 2, None, first=None)
    assert not restart.two.has(AskPartitionTable)
    restart.start()
    assert restart.world.master.cluster.state is ClusterState.RUNNING
    assert restart.rows == [{1: UP, 2: UP}] * 2
