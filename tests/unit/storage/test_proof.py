"""What a node reports of its own cells before it serves (neo/storage/proof.py, AskTails)."""

from __future__ import annotations

import logging

import pytest

from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    AnswerTails,
    AskRecovery,
    AskTails,
    CellRow,
    NotifyPartitionChanges,
    NotifyReady,
    NotifyReplicationDone,
    StartOperation,
)
from neo.storage.replication import replicator
from neo.storage.serving.master import recovery
from tests.unit.storage.replicas import Destination, full
from tests.unit.storage.requests import commit, store, vote
from tests.unit.storage.world import OUT, UP, End, MakeWorld, World

CellRows = list[list[CellRow]]

#: Partition 0 with a replica, in two states.
COMPLETE: CellRows = [[(1, UP), (2, UP)], [(1, UP)]]
COPYING: CellRows = [[(1, OUT), (2, UP)], [(1, UP)]]


def complete_up_to(world: World) -> int:
    return next(cell.tid for cell in world.backend.tables.cells() if (cell.partition, cell.nid) == (0, 1))


def again(world: World, rows: CellRows, ptid: int) -> End:
    """The master is lost and comes back with this table."""
    world.host.advance(5)
    master = world.join()
    world.send_table(master, rows, ptid)
    return master


def announced(world: World) -> End:
    """The cell of partition 0 was replicated, and the master was told."""
    node = Destination(world)
    node.unfinished(12)
    node.serve(node.source(), 0, 12, {(12, 0): b"a"})
    node.master.take(NotifyReplicationDone)
    return node.master


def proven(master: End) -> list[bool]:
    answer = master.ask(AskTails([0, 1], None, 100))
    assert isinstance(answer, AnswerTails)
    return [row[1] for row in answer.tail_list]


def test_the_tail_is_what_is_committed(world: World, master: End) -> None:
    """Specification 5.14."""
    full(world, master)
    client = world.client(master)
    store(client, 18, 4, 16)
    vote(client, 18, 4)
    first, second = (p64(12), p64(0)), (p64(12), p64(2))
    others = [(p64(16), p64(2)), (p64(16), p64(4))]
    rows = [
        (0, True, [p64(12), p64(16)], [first, second, *others]),
        (1, True, [], [(p64(12), p64(1))]),
    ]
    assert master.ask(AskTails([0, 1], None, 100)) == AnswerTails(ZERO_TID, rows)
    rows = [(0, True, [p64(12)], [second])]
    assert master.ask(AskTails([0], p64(13), 1)) == AnswerTails(ZERO_TID, rows)
    world.backend.replication.packed_elsewhere(p64(12))
    assert master.ask(AskTails([7], None, 0)) == AnswerTails(p64(12), [(7, True, [], [])])


def test_a_cell_that_was_complete_is_proven(world: World) -> None:
    world.operate().disconnect()
    assert proven(again(world, COMPLETE, 2)) == [True, True]


def test_a_cell_that_was_out_of_date_here_is_not_proven_by_a_table(
    world: World, make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after a restart, until the master has it copied: all that is here is compared then
    (specification 5.22)."""
    master = announced(world)
    world.core.cells.proof.begin([0])  # as if that had not happened
    master.disconnect()
    caplog.set_level(logging.ERROR)
    master = again(world, COMPLETE, 2)
    assert "partition table 2 says that partitions 0 can be read here" in caplog.text
    assert proven(master) == [False, True]
    master.ask(AskRecovery())
    world = make_world()
    master = world.join()
    world.send_table(master, COMPLETE, 3)
    assert proven(master) == [False, True]
    assert complete_up_to(world) == -1
    master.send(NotifyPartitionChanges(4, 0, [(0, 1, OUT)]))
    world.settle()
    assert complete_up_to(world) == 0
    assert proven(master) == [True, True]


def test_a_cell_that_was_announced_is_proven(world: World) -> None:
    """The node was lost before it knew that its cell is readable (specification 5.22, 10.26)."""
    announced(world).disconnect()
    assert proven(again(world, COMPLETE, 2)) == [True, True]


def test_it_is_not_when_it_replicates_again(world: World) -> None:
    announced(world).disconnect()
    master = again(world, COPYING, 2)
    master.send(StartOperation(False))
    master.take(NotifyReady)
    master.disconnect()
    assert proven(again(world, COMPLETE, 3)) == [False, True]


def test_what_the_master_starts_nevertheless_is_served(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 5.22."""
    Destination(world).master.disconnect()
    master = again(world, COMPLETE, 2)
    caplog.set_level(logging.ERROR)
    master.send(StartOperation(False))
    master.take(NotifyReady)
    assert "partitions 0 are read here as the master says" in caplog.text
    assert proven(master) == [True, True]


def test_the_tail_is_compared_again_by_replication(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master found that something of it is missing; a part that is short is compared in whole
    (specification 10.20)."""
    monkeypatch.setattr(replicator, "TAIL_LENGTH", 3)
    master = world.operate()
    client = world.client(master)
    for tid in (12, 16, 20):
        commit(master, client, tid - 2, tid, 0, 0 if tid == 12 else tid - 4)
    commit(master, client, 22, 24, 1)
    world.host.advance(5)
    master.disconnect()
    node = Destination(world, ptid=2)
    node.unfinished(24)
    source = node.source()
    node.serve_from(source, 16, 12, 24, {(14, 2): b"missed"})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(24)


def test_no_more_rows_of_a_cell_are_told_than_a_node_gives_at_most(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 5.14."""
    monkeypatch.setattr(recovery, "TAIL_MAX", 2)
    for ttid in (10, 12, 14):
        commit(master, client, ttid, ttid, ttid)
    ((_, _, tids, revisions),) = master.ask(AskTails([0], None, 1000)).tail_list
    assert tids == [p64(12), p64(14)]
    assert [tuple(row) for row in revisions] == [(p64(12), p64(12)), (p64(14), p64(14))]
