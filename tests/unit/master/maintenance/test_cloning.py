"""The master gives a clone its id and cells (specification 18)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from neo.node.task import Future
from neo.protocol.enums import ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.packets import (
    FEATURE_OURS,
    AcceptIdentification,
    AnswerRecovery,
    AskRecovery,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    RequestIdentification,
    SendPartitionTable,
    SetClusterState,
    SetNodeState,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import OUT, MasterWorld


def ask(
    world: MasterWorld, new_nid: Any, extra: dict[str, Any] | None = None, **changes: Any
) -> tuple[Remote, Future[Any]]:
    remote = Remote.connect(world.master)
    request = RequestIdentification(
        NodeType.STORAGE, None, None, "test", None, {"new_nid": new_nid, **(extra or {})}
    )
    return remote, remote.ask(replace(request, **changes))


def test_a_clone_gets_a_free_id_and_outdated_cells(world: MasterWorld) -> None:
    """As in the capture: other nodes are told of the node, which is DOWN, then of its cells
    (specification 18.4, 18.6)."""
    first, second = world.running(2)
    for storage in (first, second):
        storage.received.clear()
    clone, answer = ask(world, [3, 0], {"partitions": 4})
    assert answer.result() == AcceptIdentification(NodeType.MASTER, world.master.cluster.node.nid, 3)
    row = (NodeType.STORAGE, None, 3, NodeState.DOWN)
    assert first.received[0].node_list[0][:4] == row
    assert first.received[1] == NotifyPartitionChanges(2, 0, [(3, 3, OUT), (0, 3, OUT)])
    assert clone.take(NotifyNodeInformation).node_list[0][:4] == row
    table = clone.take(SendPartitionTable)
    assert table.ptid == 2 and (3, OUT) in table.row_list[0]
    clone.lose()
    back = world.join_storage(3)
    assert back.take(NotifyNodeInformation).node_list[0][2:4] == (3, NodeState.RUNNING)


def test_a_clone_that_does_not_come_back_is_dropped(world: MasterWorld) -> None:
    world.running(2)
    ask(world, [0])
    world.admin().ask(SetNodeState(3, NodeState.UNKNOWN)).result()
    assert world.master.partitions.nodes() == {1, 2}


def test_two_clones_get_different_ids(world: MasterWorld) -> None:
    world.running(2)
    assert [ask(world, [0])[1].result().your_nid for _ in range(2)] == [3, 4]


def asked_for_a_clone(world: MasterWorld) -> tuple[Remote, Future[Any], list[Remote]]:
    """A cluster whose storage nodes report what is on their disks."""
    world.extra = {"features": [FEATURE_OURS]}
    storages = world.running(2)
    clone, answer = ask(world, [0])
    return clone, answer, storages


def stored(storage: Remote) -> None:
    """Confirm that the storage node has on its disk what it was told."""
    while storage.has(AskRecovery):
        storage.answer(storage.take(AskRecovery), AnswerRecovery(2, None, None))


def test_a_clone_hears_of_its_id_when_who_can_be_read_has_it_on_disk(world: MasterWorld) -> None:
    """Otherwise another master could allocate the id again: two nodes would have one id, and clients
    would read from one of them what only the other one has (specification 18.5)."""
    clone, answer, (first, second) = asked_for_a_clone(world)
    stored(first)
    assert not answer.done and not clone.received
    stored(second)
    assert answer.result().your_nid == 3 and clone.has(SendPartitionTable)


def test_a_clone_asks_again_when_nobody_knows_its_id(world: MasterWorld) -> None:
    """Specification 18.5."""
    clone, _, storages = asked_for_a_clone(world)
    for storage in storages:
        storage.lose()
    assert clone.closed and not clone.received


def test_an_id_that_a_clone_did_not_wait_for_is_taken_back(world: MasterWorld) -> None:
    """The clone asks for another id (specification 18.6). If disks are slow, each attempt would leave a
    node that is DOWN."""
    clone, _, storages = asked_for_a_clone(world)
    clone.lose()
    for storage in storages:
        stored(storage)
    assert world.master.partitions.nodes() == {1, 2} and world.master.nodes.get(3) is None
    row = storages[0].received[-1].node_list[0]
    assert row[2:4] == (3, NodeState.UNKNOWN)


def test_a_clone_that_was_dropped_before_it_heard_of_its_id_does_not_get_it(
    world: MasterWorld,
) -> None:
    clone, _, storages = asked_for_a_clone(world)
    world.admin().ask(SetNodeState(3, NodeState.UNKNOWN)).result()
    for storage in storages:
        stored(storage)
    assert clone.closed and not clone.received


@pytest.mark.parametrize(
    ("new_nid", "changes", "text"),
    [
        ([4], {}, "partitions 0 to 3 exist"),
        ([-1], {}, "partitions 0 to 3 exist"),
        (["0"], {}, "partitions 0 to 3 exist"),
        ([True], {}, "partitions 0 to 3 exist"),
        ("all", {}, "partitions 0 to 3 exist"),
        ([0], {"extra": {"partitions": 3}}, "the database has 3 partitions and the cluster 4"),
        ([4], {"extra": {"partitions": 5}}, "the database has 5 partitions and the cluster 4"),
        ([0], {"nid": 1}, "without id and address"),
        ([0], {"address": ("127.0.0.1", 9)}, "without id and address"),
        ([0], {"node_type": NodeType.CLIENT}, "without id and address"),
    ],
)
def test_refused(world: MasterWorld, new_nid: Any, changes: dict[str, Any], text: str) -> None:
    """Specification 18.3."""
    world.running(2)
    remote, answer = ask(world, new_nid, **changes)
    error = error_of(answer)
    assert error.code is ErrorCode.PROTOCOL_ERROR and text in error.message
    assert remote.closed
    assert world.master.partitions.ptid == 1 and world.master.nodes.get(3) is None


def test_not_ready_unless_the_cluster_runs(world: MasterWorld) -> None:
    """Specification 18.3."""
    storage = world.storage(1)
    assert error_of(ask(world, [0])[1]).code is ErrorCode.NOT_READY
    world.admin().ask(SetClusterState(ClusterState.VERIFYING)).result()
    assert world.master.cluster.state is ClusterState.VERIFYING
    assert error_of(ask(world, [0])[1]).code is ErrorCode.NOT_READY
    assert not storage.has(NotifyPartitionChanges)
