"""A storage node with an empty database is never taken for one that has data (docs/decisions.md)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.packets import (
    BLANK,
    FEATURE_OURS,
    FEATURES,
    GREATEST_NID,
    AcceptIdentification,
    AnswerPartitionTable,
    AnswerRecovery,
    AskPartitionTable,
    AskRecovery,
    Error,
    NotifyNodeInformation,
    SetNodeState,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import OUT, UP, MasterWorld, spread


def join(world: MasterWorld, port: int, nid: int | None = None, **extra: Any) -> Remote:
    return world.join(NodeType.STORAGE, nid, port, **extra)


def nid_of(storage: Remote) -> int | None:
    return storage.take(AcceptIdentification).your_nid


def test_a_new_node_that_comes_first_does_not_keep_the_id_of_one_with_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody knows the table yet. The cluster must not start with it."""
    world = MasterWorld()
    new = world.storage(9)
    assert nid_of(new) == 1
    world.storage(2, 7, spread(1, 2), nid=2)
    assert new.closed and world.master.cluster.state is ClusterState.RECOVERING
    assert "the database of the storage node at 127.0.0.1:9109 is empty, so that it is not S1" in (
        caplog.text
    )
    assert nid_of(join(world, 9109, nid=1, blank=True)) == 3
    assert world.master.cluster.state is ClusterState.RECOVERING
    first = world.storage(1, 7, spread(1, 2), nid=1)
    assert nid_of(first) == 1 and world.master.cluster.state is ClusterState.VERIFYING


def test_a_blank_node_has_no_part_in_operations_before_its_id_is_known_to_be_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Specification 27.29. It would do the steps of a node that is away, and undo them."""
    world = MasterWorld()
    monkeypatch.setattr(world, "extra", {FEATURES: [FEATURE_OURS]})
    told: list[int] = []
    initiator = world.master.operations._initiator
    monkeypatch.setattr(initiator, "joined", lambda nid, journal: told.append(nid))
    new = world.storage(9)
    assert nid_of(new) == 1 and told == []
    first = world.storage(1, 7, spread(1, 2), nid=1)
    assert new.closed and told == [1]
    assert nid_of(world.storage(9)) == 3 and told == [1]
    world.storage(2, 7, spread(1, 2), nid=2)
    assert nid_of(first) == 1 and world.master.cluster.state is ClusterState.VERIFYING
    assert told == [1, 2, 3]


def test_a_node_with_data_is_let_in_where_a_new_one_has_its_id() -> None:
    """Specification 18.12."""
    world = MasterWorld()
    new = world.storage(9)
    first = world.storage(1, 7, spread(1, 2), nid=1)
    assert new.closed and nid_of(first) == 1
    assert nid_of(join(world, 9109, nid=1, blank=True)) == 3
    world.storage(2, 7, spread(1, 2), nid=2)
    assert world.master.cluster.state is ClusterState.VERIFYING


def test_an_empty_database_at_the_address_of_a_node_with_data_is_another_node() -> None:
    """The disk was not mounted: the node must not serve nothing, and be let in when it is
    (specification 18.11)."""
    world = MasterWorld()
    first, second = world.running(2)
    first.lose()
    assert world.master.cluster.state is ClusterState.RECOVERING
    world.remember(second, 1, spread(1, 2))
    second.received.clear()
    assert nid_of(join(world, 9101)) == 3
    assert world.master.cluster.state is ClusterState.RECOVERING
    moved, new = (m.node_list[0] for m in second.received if isinstance(m, NotifyNodeInformation))
    assert moved[:4] == (NodeType.STORAGE, None, 1, NodeState.DOWN)
    assert new[1:3] == (("127.0.0.1", 9101), 3)
    assert nid_of(join(world, 9111, nid=1)) == 1


@pytest.mark.parametrize("known", [False, True])
def test_a_node_with_cells_whose_address_another_one_has_can_be_dropped(known: bool) -> None:
    """Specification 3.13. A node was filled on a disk that was not the right one: the right disk is
    mounted again, with the id of a node that the master knows, or has forgotten meanwhile."""
    world = MasterWorld(replicas=1)
    first, _ = world.running(2)
    if known:
        moved = join(world, 9120, nid=3)
        moved.lose()
    first.lose()
    admin = world.admin()
    assert nid_of(join(world, 9101, nid=3)) == 3
    rows = [row for m in admin.received if isinstance(m, NotifyNodeInformation) for row in m.node_list]
    assert (NodeType.STORAGE, None, 1, NodeState.DOWN) in [row[:4] for row in rows]
    answer = admin.ask(SetNodeState(1, NodeState.UNKNOWN)).result()
    assert isinstance(answer, Error) and answer.code == ErrorCode.ACK.value
    assert world.master.partitions.assigned(1) == []


def test_an_empty_database_at_the_address_of_a_node_that_is_behind_is_another_node() -> None:
    """Filled on the wrong disk, its cells would be read from the right one when that is mounted. Nor does
    it help that the empty one was given the id when no table was known (specification 18.10)."""
    world = MasterWorld(replicas=1)
    first, _ = world.running(2)
    first.lose()
    assert world.master.partitions.state(0, 1) is OUT
    assert nid_of(join(world, 9101)) == 3
    assert nid_of(join(world, 9109, nid=1, blank=True)) == 4
    assert nid_of(join(world, 9111, nid=1)) == 1


def test_a_new_node_that_comes_first_does_not_keep_the_id_of_one_that_is_behind() -> None:
    """Specification 18.12."""
    world = MasterWorld()
    new = world.storage(9)
    assert nid_of(new) == 1
    world.storage(2, 7, [[(1, OUT), (2, UP)]] * 4, nid=2)
    assert new.closed and world.master.cluster.state is ClusterState.VERIFYING
    assert nid_of(join(world, 9109, nid=1, blank=True)) == 3


def test_a_blank_node_gives_way_to_who_got_its_id_meanwhile() -> None:
    """Specification 18.10."""
    world = MasterWorld()
    world.running(2)
    assert nid_of(join(world, 9109, nid=2, blank=True)) == 3
    assert nid_of(join(world, 9110, nid=9, blank=True)) == 9


def test_a_node_that_was_filled_is_blank_no_more() -> None:
    """It keeps its id when the cluster has to recover, and nobody else gets it (specification 18.13)."""
    world = MasterWorld()
    first, second = world.running(2)
    second.lose()
    first.answer(first.take(AskRecovery), AnswerRecovery(1, None, None))
    first.answer(first.take(AskPartitionTable), AnswerPartitionTable(1, 0, spread(1, 2)))
    assert not first.closed
    refused = join(world, 9111, nid=1)
    assert refused.closed and not first.closed


@pytest.mark.parametrize("greatest", [5, 0, None, "x", 2**30])
def test_ids_that_another_master_gave_are_not_given_again(greatest: object) -> None:
    """Specification 18.14, 21.13."""
    world = MasterWorld()
    extra = {} if greatest is None else {GREATEST_NID: greatest}
    storage = join(world, 9102, nid=2, **extra)
    world.remember(storage, 7, spread(2))
    assert nid_of(join(world, 9103)) == (6 if greatest == 5 else 3)


def test_nodes_of_other_implementations_are_what_they_say() -> None:
    """They do not tell that they are blank; with an id, they are taken for what has it."""
    world = MasterWorld()
    world.storage(2, 7, spread(1, 2), nid=2)
    assert nid_of(join(world, 9101, nid=1)) == 1
    assert BLANK not in world.extra
