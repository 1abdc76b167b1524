"""Copies of a partition are kept on different machines (specification 3.6, 9.20)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import CellState, ClusterState, NodeType
from neo.protocol.packets import AddPendingNodes, SetClusterState, TweakPartitionTable
from tests.support.remote import Remote
from tests.unit.master.cluster import MasterWorld

#: Two of three storage nodes are on one machine.
PATHS = {1: ["room", "machine a", "1"], 2: ["room", "machine a", "2"], 3: ["room", "machine b", "1"]}


def join(world: MasterWorld, nid: int) -> Remote:
    return world.join(NodeType.STORAGE, port=9100 + nid, devpath=PATHS[nid])


@pytest.fixture
def world() -> MasterWorld:
    return MasterWorld(partitions=12, replicas=1)


def create(world: MasterWorld, *nids: int) -> None:
    storages = [join(world, nid) for nid in nids]
    for storage in storages:
        world.remember(storage)
    world.admin().ask(SetClusterState(ClusterState.VERIFYING)).result()
    world.verify(*storages)
    assert world.master.cluster.state is ClusterState.RUNNING


def test_a_new_database_has_its_copies_on_different_machines(world: MasterWorld) -> None:
    create(world, 1, 2, 3)
    rows = [set(row) for row in world.master.partitions.rows]
    assert rows.count({1, 3}) == rows.count({2, 3}) == 6


def test_a_tweak_moves_copies_to_another_machine(world: MasterWorld) -> None:
    create(world, 1, 2)
    assert [set(row) for row in world.master.partitions.rows] == [{1, 2}] * 12
    join(world, 3)
    world.admin().ask(AddPendingNodes([3])).result()
    world.admin().ask(TweakPartitionTable(False, [])).result()
    rows = world.master.partitions.rows
    assert all(row[3] is CellState.OUT_OF_DATE for row in rows)
    staying = [{nid for nid, s in row.items() if s is CellState.UP_TO_DATE} for row in rows]
    assert staying.count({1}) == staying.count({2}) == 6


def test_nodes_that_do_not_say_where_they_are_share_evenly(world: MasterWorld) -> None:
    world.running(3)
    rows = [set(row) for row in world.master.partitions.rows]
    assert all(rows.count(pair) == 4 for pair in ({1, 2}, {1, 3}, {2, 3}))
