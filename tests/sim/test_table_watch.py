"""Illegal partition tables, and illegal changes of them, are found on nodes of all types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from neo.master.phases.recovery import Recovery
from neo.master.primary import PrimaryMaster
from neo.protocol.enums import CellState, NodeType
from neo.protocol.packets import CellChange, SendPartitionTable
from neo.storage.cells import Cells
from neo.storage.node import StorageNode
from neo.topology.partitions import PartitionTable
from tests.simulator.alarm import alarmed
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.replicas import LEGAL, OURS, SPECIFIED
from tests.simulator.table_watch import watched_tables
from tests.simulator.world import Violation, World

UP, OUT, FEEDING = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.FEEDING


def change(ptid: int, *changes: CellChange) -> None:
    """Check a change of a table of version 1, in which node 1 has all cells, UP_TO_DATE."""
    world = World(0)
    table = PartitionTable()
    table.create(2, 0, [1])
    world.call_later(0.0, lambda: table.change(ptid, 0, changes))
    with watched_tables(world):
        world.run(1.0)


def test_the_next_version_with_possible_changes_is_right() -> None:
    change(2, (0, 1, OUT), (1, 2, OUT))
    change(2, (0, 1, FEEDING))
    change(2, (0, 1, CellState.DISCARDED))


@pytest.mark.parametrize("ptid", [0, 1, 3])
def test_a_version_that_is_not_the_next_one_is_found(ptid: int) -> None:
    with pytest.raises(Violation, match="not the next version"):
        change(ptid, (0, 1, OUT))


@pytest.mark.parametrize(
    "wrong", [(0, 2, UP), (0, 2, FEEDING), (0, 1, UP), (0, 2, CellState.DISCARDED)]
)
def test_a_cell_that_may_not_follow_is_found(wrong: CellChange) -> None:
    with pytest.raises(Violation, match="partition 0 of S2|partition 0 of S1"):
        change(2, wrong)


def test_each_legal_transition_is_the_specifications_or_ours() -> None:
    assert LEGAL == SPECIFIED | OURS and not SPECIFIED & OURS


class Watched:
    """A cluster with two copies of everything, whose second node was lost and came back. So there is an
    older table."""

    def __init__(self) -> None:
        self.world = world = World(0)
        self.cluster = Cluster(world, Shape(2, 2, 1), lambda name: MemoryDisk(world, name))

    def start(self) -> None:
        self.cluster.start()
        self.older = self.master.cluster.table()
        self.cluster.storages[1].kill()
        self.world.run_until(lambda: self.master.cluster.table() != self.older, 10.0, "a change")
        self.cluster.storages[1].start()
        self.cluster.wait_running()
        self.world.run(5.0)

    @property
    def master(self) -> PrimaryMaster:
        assert self.cluster.master_core is not None
        return self.cluster.master_core

    def cores(self, cluster: str = "") -> list[StorageNode]:
        return [p.core for p in self.cluster.storages if isinstance(p.core, StorageNode)]

    def send(self, table: SendPartitionTable) -> None:
        """Send a wrong table to all nodes."""
        for peer in self.master.cluster.connected.values():
            peer.send(table)
        self.master.flush()


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    with watched_tables(watched.world, watched.cores), alarmed(watched.world):
        watched.start()
        yield watched
    for process in watched.cluster.clients:
        process.dead = True
        for thread in process.members:
            thread.resume()


def violated(watched: Watched, what: str) -> None:
    with pytest.raises(Violation, match=what):
        watched.world.run(10.0)


def test_a_cluster_that_is_right_is_not_complained_about(watched: Watched) -> None:
    watched.cluster.master.kill()
    watched.cluster.master.start()
    watched.cluster.wait_running()


def test_a_master_that_goes_back_is_found(watched: Watched) -> None:
    table = watched.older
    watched.master.partitions.load(table.ptid, table.num_replicas, table.row_list)
    watched.master.cluster.publish_table()
    violated(watched, "tells of partition table 1 of sim, after")


def test_a_table_that_is_told_again_with_other_rows_is_found(watched: Watched) -> None:
    """Specification 23.9."""
    watched.master.partitions.rows[0][2] = CellState.FEEDING
    watched.master.cluster.publish_table()
    violated(watched, "for the second time and with other rows")


def test_a_change_that_leaves_nobody_to_read_from_is_found(watched: Watched) -> None:
    """Specification 23.10."""
    watched.master.cluster.change_partitions([(0, 1, OUT), (0, 2, OUT)])
    violated(watched, "in which no node has partition 0")


@pytest.fixture
def credulous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make storage nodes accept every table."""
    monkeypatch.setattr(Cells, "check", lambda self, table: None)


@pytest.mark.usefixtures("credulous")
def test_an_older_table_that_is_taken_is_found(watched: Watched) -> None:
    watched.send(watched.older)
    violated(watched, "goes back from partition table")


@pytest.mark.usefixtures("credulous")
def test_a_table_that_no_master_told_is_found(watched: Watched) -> None:
    table = watched.master.cluster.table()
    row = [(1, UP), (2, FEEDING)]
    watched.send(replace(table, row_list=[row, *table.row_list[1:]]))
    violated(watched, "that no master sent")


def test_a_client_that_takes_an_older_table_is_found(watched: Watched) -> None:
    process = watched.cluster.client()
    process.spawn(lambda: watched.cluster.storage(process).sync())
    watched.world.run(1.0)
    (peer,) = watched.master.cluster.of_type(NodeType.CLIENT)
    peer.send(watched.older)
    watched.master.flush()
    violated(watched, "a client goes back from partition table")


def test_the_rest_of_a_lost_connection_is_no_step_back(watched: Watched) -> None:
    """A client may handle what the old connection had received after it has joined again."""
    process = watched.cluster.client()
    storages: list[Any] = []
    process.spawn(lambda: storages.append(watched.cluster.storage(process)))
    watched.world.run(1.0)
    (storage,) = storages
    process.spawn(storage.sync)
    watched.world.run(1.0)
    joined = storage._session.master.current
    joined.channel.close("on purpose")
    joined.handler.notified(joined.channel, watched.older)
    watched.world.run(1.0)


def test_a_recovery_from_an_older_table_is_found(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node went on alone, and the master asks the other one."""
    known = watched.master.cluster.table()
    watched.cluster.storages[1].kill()
    watched.world.run_until(lambda: watched.master.cluster.table() != known, 10.0, "a change")
    watched.world.run(5.0)

    def oldest(self: Recovery) -> tuple[int, int] | None:
        answers = [(a.ptid, nid) for nid, a in self._answers.items() if a.ptid is not None]
        return min(answers) if len(answers) == 2 else None

    monkeypatch.setattr(Recovery, "_newest", oldest)

    def obstacle(self: Recovery, strict: bool) -> str | None:
        return None if len(self._answers) == 2 else "somebody is away"

    monkeypatch.setattr(Recovery, "_obstacle", obstacle)
    watched.cluster.master.kill()
    watched.cluster.storages[1].start()
    watched.cluster.master.start()
    violated(watched, "and a storage node has")
