"""Check and repair in a backup, and clones of its nodes, as the master leads them."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import CellState, ClusterState, NodeType
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AcceptIdentification,
    AskCheckReport,
    CheckPartition,
    CheckReplicas,
    InvalidateObjects,
    MendCell,
    NotifyPartitionChanges,
    NotifyPartitionChecked,
    NotifyPartitionCorrupted,
    RepairCells,
    Replicate,
)
from tests.unit.master.backup_world import OTHER, SOURCE, BackupWorld, complete, fetched
from tests.unit.master.cluster import tid

OUT, UP, BAD = CellState.OUT_OF_DATE, CellState.UP_TO_DATE, CellState.CORRUPTED
SOURCES = [("up", SOURCE), ("up", OTHER)]


class Followed(BackupWorld):
    """A backup with all partitions on all of its nodes, whose watermark is 10."""

    extra = {FEATURES: [FEATURE_OURS]}

    def __init__(self, count: int = 1) -> None:
        super().__init__(replicas=count - 1)
        self.following, self.storages = self.backingup(count)
        self.following.send(InvalidateObjects(tid(10), []))
        partition = self.master.partitions.partition(tid(10))
        for _ in range(count):
            for storage in self.storages:
                while storage.has(Replicate):
                    order = storage.take(Replicate)
                    if partition in order.source_dict and order.source_dict[partition]:
                        fetched(storage, 10, partition)
                complete(10, storage)
        assert self.master.cluster.last_tid == tid(10)
        for storage in self.storages:
            storage.received.clear()

    def do(self, message: Any) -> str:
        return str(self.admin().ask(message).result().message)

    def rows(self) -> list[Any]:
        return list(self.admin().ask(AskCheckReport()).result().row_list)

    def check(self, reference: int | None = None) -> None:
        self.do(CheckReplicas({0: reference}, ZERO_TID, None))

    def undecided(self) -> None:
        self.check()
        self.storages[0].take(CheckPartition)
        wrong = list(range(1, len(self.storages) + 1))
        self.storages[0].send(NotifyPartitionCorrupted(0, wrong))
        self.storages[0].send(NotifyPartitionChecked(0, ""))


def test_a_single_copy_is_compared_with_the_upstream_cluster_up_to_what_readers_see() -> None:
    """Specification 11.2, 11.3."""
    world = Followed()
    world.check()
    question = world.storages[0].take(CheckPartition)
    assert question.source in SOURCES
    assert question == CheckPartition(0, question.source, ZERO_TID, tid(10))
    world.storages[0].send(NotifyPartitionChecked(0, ""))
    assert world.rows() == [(0, 1, "equal", "")]


def test_the_operator_may_name_a_node_of_the_backup() -> None:
    """Specification 11.3."""
    world = Followed(2)
    world.check(1)
    question = world.storages[1].take(CheckPartition)
    assert question.source == ("", ("127.0.0.1", 9101))


def test_without_the_upstream_cluster_copies_are_compared_with_each_other() -> None:
    world = Followed(2)
    world.following.lose()
    world.check()
    assert world.storages[0].take(CheckPartition).source == ("", None)
    alone = Followed()
    alone.following.lose()
    alone.check()
    assert alone.rows() == [(0, None, "alone", "one readable copy")]


def test_a_check_fails_with_the_upstream_cluster() -> None:
    """The upstream cluster may come back with another history (specification 11.15)."""
    world = Followed(2)
    world.check()
    world.following.lose()
    assert world.rows() == [(0, 1, "failed", "the upstream cluster was lost")]
    world.storages[0].send(NotifyPartitionCorrupted(0, [2]))
    assert world.master.partitions.rows[0] == {1: UP, 2: UP}


def test_a_wrong_copy_beside_a_right_one_is_copied_anew() -> None:
    world = Followed(2)
    world.check()
    world.storages[0].send(NotifyPartitionCorrupted(0, [2]))
    assert world.storages[0].take(NotifyPartitionChanges).cell_list == [(0, 2, BAD)]
    assert world.rows()[0][2] == "corrupted"
    assert world.do(RepairCells([(0, 2)])) == "1 cell is copied anew"
    assert world.master.partitions.rows[0] == {1: UP, 2: OUT}
    assert world.master.cluster.state is ClusterState.BACKINGUP


@pytest.mark.parametrize("count", [1, 2])
def test_the_last_copies_stay_in_service_and_get_what_they_lack(count: int) -> None:
    """Specification 11.19."""
    world = Followed(count)
    world.undecided()
    ((*_, finding, text),) = world.rows()
    assert finding == "undecided" and text.endswith("if it is right: neoctl repair 0:S1")
    assert set(world.master.partitions.rows[0].values()) == {UP}
    world.do(RepairCells([(0, 1)]))
    order = world.storages[0].take(MendCell)
    assert (order.partition, order.max_tid) == (0, tid(10)) and order.source in SOURCES
    assert world.rows() == [(0, 1, "running", "")]
    world.storages[0].send(NotifyPartitionChecked(0, ""))
    ((*_, finding, text),) = world.rows()
    assert finding == "equal" and "check again" in text
    assert set(world.master.partitions.rows[0].values()) == {UP}


def test_what_cannot_be_taken_over_is_told() -> None:
    world = Followed()
    world.undecided()
    world.do(RepairCells([(0, 1)]))
    world.storages[0].send(NotifyPartitionChecked(0, "packed at another tid"))
    assert world.rows() == [(0, 1, "failed", "packed at another tid")]


def test_nothing_is_taken_over_without_the_upstream_cluster_or_without_a_finding() -> None:
    world = Followed()
    assert "only CORRUPTED" in world.denied(RepairCells([(0, 1)]))
    world.undecided()
    world.following.lose()
    assert "cannot be read in the upstream" in world.denied(RepairCells([(0, 1)]))
    assert not world.storages[0].has(MendCell)


def test_a_copy_of_a_backup_becomes_a_node_of_it() -> None:
    world = Followed()
    answer = world.join(NodeType.STORAGE, new_nid=[2]).identified  # type: ignore[attr-defined]
    complete(10, world.storages[0], ptid=2)
    assert answer.result() == AcceptIdentification(NodeType.MASTER, world.master.cluster.node.nid, 2)
    assert world.master.partitions.rows[2] == {1: UP, 2: OUT}
    assert world.master.cluster.state is ClusterState.BACKINGUP
