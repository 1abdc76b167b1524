"""Check and repair of replicas as the master leads them (neo.master.maintenance.check)."""

from __future__ import annotations

from neo.master.maintenance.check import Finding
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    AskCheckReport,
    CheckPartition,
    CheckReplicas,
    NotifyCellsBehind,
    NotifyPartitionChanges,
    NotifyPartitionChecked,
    NotifyPartitionCorrupted,
    RepairCells,
)
from tests.unit.master.checked import Served
from tests.unit.master.cluster import tid

OUT, UP, BAD = CellState.OUT_OF_DATE, CellState.UP_TO_DATE, CellState.CORRUPTED
ALL: dict[int, int | None] = dict.fromkeys(range(4))


def test_each_partition_is_compared_by_one_node_in_turn() -> None:
    """Specification 11.2, 11.3."""
    world = Served()
    assert world.do(CheckReplicas(ALL, ZERO_TID, None)) == ""
    asked = world.asked()
    assert sorted(m.partition for _, m in asked) == [0, 1, 2, 3]
    assert [nid for nid, _ in asked] == [1, 1, 2, 2]
    assert all(m == CheckPartition(m.partition, ("", None), ZERO_TID, tid(100)) for _, m in asked)
    assert set(world.findings().values()) == {"running"}


def test_the_reference_is_told_by_its_address_to_another_node() -> None:
    """Specification 11.2, 11.3."""
    world = Served()
    world.do(CheckReplicas({1: 1}, tid(3), tid(50)))
    assert world.asked() == [(2, CheckPartition(1, ("", ("127.0.0.1", 9101)), tid(3), tid(50)))]


def test_later_transactions_than_the_last_are_not_compared() -> None:
    """Later transactions may be committed on one node and not yet on another (specification 11.1)."""
    world = Served()
    world.do(CheckReplicas({1: None}, ZERO_TID, tid(1000)))
    ((_, question),) = world.asked()
    assert question.max_tid == tid(100)


def test_single_copies_are_not_compared() -> None:
    """Specification 11.2."""
    world = Served(1)
    world.do(CheckReplicas(ALL, ZERO_TID, None))
    assert not world.asked()
    assert set(world.findings().values()) == {"alone"}


def test_the_report_tells_how_it_went_worst_first() -> None:
    """Specification 11.16."""
    world = Served()
    world.do(CheckReplicas(ALL, ZERO_TID, None))
    by = {m.partition: nid for nid, m in world.asked()}
    reports = {
        0: NotifyPartitionChecked(0, ""),
        1: NotifyPartitionCorrupted(1, [1, 2]),
        2: NotifyPartitionChecked(2, "S1: lost"),
    }
    for partition, message in reports.items():
        world.storages[by[partition] - 1].send(message)
    assert list(world.findings().items()) == [
        (2, "failed"),
        (1, "undecided"),
        (0, "equal"),
        (3, "running"),
    ]


def test_wrong_cells_are_taken_out_of_service() -> None:
    """Specification 11.12."""
    world = Served(3)
    world.do(CheckReplicas({0: None}, ZERO_TID, None))
    ((nid, _),) = world.asked()
    other = world.storages[nid % 3]
    world.storages[nid - 1].send(NotifyPartitionCorrupted(0, [3]))
    world.storages[nid - 1].send(NotifyPartitionChecked(0, ""))
    assert world.master.partitions.rows[0] == {1: UP, 2: UP, 3: BAD}
    assert other.take(NotifyPartitionChanges).cell_list == [(0, 3, BAD)]
    assert world.findings() == {0: "corrupted"}


def test_the_last_readable_cells_stay_in_service_when_nobody_knows_which_is_right() -> None:
    """Specification 11.12, 23.10: another implementation stops the cluster then."""
    world = Served()
    world.do(CheckReplicas({0: None}, ZERO_TID, None))
    ((nid, _),) = world.asked()
    world.storages[nid - 1].send(NotifyPartitionCorrupted(0, [1, 2]))
    world.storages[nid - 1].send(NotifyPartitionChecked(0, ""))
    assert world.master.partitions.rows[0] == {1: UP, 2: UP}
    assert world.findings() == {0: "undecided"}
    assert world.master.cluster.state is ClusterState.RUNNING


def test_the_report_says_which_copy_is_behind() -> None:
    world = Served()
    world.do(CheckReplicas({0: None, 1: None}, ZERO_TID, None))
    by = dict(sorted((m.partition, nid) for nid, m in world.asked()))
    since = b"\0" * 7 + b"\x10"
    world.storages[by[0] - 1].send(NotifyCellsBehind(0, 1, False, {2: (since, 3)}))
    world.storages[by[0] - 1].send(NotifyPartitionCorrupted(0, [1, 2]))
    stranger = world.storages[by[1] % 2]
    stranger.send(NotifyCellsBehind(1, 1, True, {2: (since, 3)}))
    world.storages[by[1] - 1].send(NotifyPartitionCorrupted(1, [1, 2]))
    answer = world.admin().ask(AskCheckReport()).result()
    texts = {row[0]: row[3] for row in answer.row_list}
    assert texts[0] == (
        "S1, S2 differ: name the one to believe: neoctl check 0:NODE; S2 is behind S1: it lacks at least"
        " 3 transactions from 0000000000000010 on"
    )
    assert texts[1] == "S1, S2 differ: name the one to believe: neoctl check 1:NODE"


def test_what_was_not_asked_is_not_believed() -> None:
    world = Served()
    world.do(CheckReplicas({0: None}, ZERO_TID, None))
    ((nid, _),) = world.asked()
    stranger = world.storages[nid % 2]
    stranger.send(NotifyPartitionCorrupted(0, [nid]))
    stranger.send(NotifyPartitionChecked(0, ""))
    world.storages[nid - 1].send(NotifyPartitionCorrupted(1, [1]))
    assert world.findings() == {0: "running"}
    assert all(state is UP for row in world.master.partitions.rows for state in row.values())


def test_a_node_that_is_lost_fails_its_checks() -> None:
    """Specification 11.15."""
    world = Served(3)
    world.do(CheckReplicas(ALL, ZERO_TID, None))
    ((nid, question), *_) = world.asked()
    world.storages[nid - 1].lose()
    assert world.findings()[question.partition] == "failed"
    assert "running" in world.findings().values()


def test_checks_end_with_the_operation() -> None:
    """Specification 11.15."""
    world = Served()
    world.do(CheckReplicas(ALL, ZERO_TID, None))
    for storage in world.storages:
        storage.lose()
    assert set(world.findings().values()) == {"failed"}


def corrupted() -> Served:
    world = Served()
    world.master.cluster.change_partitions([(0, 2, BAD), (1, 2, BAD)])
    return world


def test_repair_makes_cells_outdated() -> None:
    """Specification 11.17."""
    world = corrupted()
    assert world.do(RepairCells([(0, 2)])) == "1 cell is copied anew"
    assert world.master.partitions.rows[0] == {1: UP, 2: OUT}
    assert world.master.partitions.rows[1] == {1: UP, 2: BAD}


def test_a_corrupted_cell_cannot_be_the_reference() -> None:
    world = corrupted()
    text = world.denied(CheckReplicas({0: 2}, ZERO_TID, None))
    assert text == ("S2 has no readable cell of partition 0, so that it cannot be the reference")


def test_findings_have_their_words() -> None:
    """Clients of the protocol read them (specification 11.16)."""
    words = "running unknown alone equal behind corrupted undecided failed"
    assert {finding.value for finding in Finding} == set(words.split())
