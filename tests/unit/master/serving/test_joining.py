"""What a node is told when it joins, and which node it is taken for."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import (
    FEATURE_CACHES,
    FEATURE_CHAINS,
    FEATURE_OURS,
    FEATURES,
    AcceptIdentification,
    Error,
    NotifyFeatures,
    NotifyNodeInformation,
    SetClusterState,
)
from tests.unit.master.cluster import OUT, UP, MasterWorld
from tests.unit.master.committing import begin

C1 = nid_namespace(NodeType.CLIENT) + 1


def your_nid(world: MasterWorld, node_type: NodeType, nid: int | None, port: int | None) -> int | None:
    return world.join(node_type, nid, port).take(AcceptIdentification).your_nid


def test_a_storage_node_of_a_cluster_that_runs_is_told_everything_in_order() -> None:
    """Specification 3.19, 3.22."""
    world = MasterWorld(replicas=1)
    _, second = world.running()
    second.lose()
    world.extra = {FEATURES: [FEATURE_OURS]}
    assert world.join_storage(2).names() == [
        "AcceptIdentification",
        "NotifyNodeInformation",
        "SendPartitionTable",
        "NotifyFeatures",
        "StartOperation",
    ]


def test_a_client_is_told_the_tables_and_no_state(world: MasterWorld) -> None:
    """Specification 3.21, 4.10."""
    world.running(1)
    assert world.client().names() == [
        "AcceptIdentification",
        "NotifyNodeInformation",
        "SendPartitionTable",
    ]


@pytest.mark.parametrize("feature", [FEATURE_OURS, "unheard of", None])
def test_an_admin_node_that_is_ours_is_told_features_after_the_tables(
    world: MasterWorld, feature: str | None
) -> None:
    """Specification 21.2, 21.6."""
    world.running(1)
    world.extra = {} if feature is None else {FEATURES: [feature]}
    admin = world.join(NodeType.ADMIN, port=9005)
    told = [m.features for m in admin.received if type(m) is NotifyFeatures]
    assert told == [[FEATURE_OURS, FEATURE_CACHES, FEATURE_CHAINS]] * (feature == FEATURE_OURS)
    names = [name for name in admin.names() if name != "NotifyClusterInformation"]
    tables = ["AcceptIdentification", "NotifyNodeInformation", "SendPartitionTable"]
    assert names == [*tables, *["NotifyFeatures"] * len(told)]


def test_what_a_node_says_besides_is_ignored(world: MasterWorld) -> None:
    """Specification 3.4."""
    world.running(1)
    world.extra = {"from a later version": [1, {"x": None}], FEATURES: ["unheard of"]}
    assert world.client().names()[0] == "AcceptIdentification"


def test_a_cluster_that_stops_admits_nobody(world: MasterWorld) -> None:
    """Specification 3.12, 4.33."""
    world.running(1)
    begin(world.client())  # the cluster waits for it
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    assert world.host.exit_code is None
    for node_type in NodeType.STORAGE, NodeType.CLIENT, NodeType.ADMIN:
        refused = world.join(node_type, port=9300)
        assert refused.take(Error) == Error(ErrorCode.NOT_READY.value, "Retry Later")
        assert refused.closed


def test_another_database_behind_a_known_address_is_another_node() -> None:
    """Specification 3.13."""
    world = MasterWorld(replicas=1)
    world.running()[1].lose()
    other = world.join(NodeType.STORAGE, 7, port=9102)
    row = other.take(NotifyNodeInformation).node_list[0]
    assert row[2:4] == (7, NodeState.PENDING)
    # The cells of the first database wait for that one, wherever it comes back, or until it is dropped.
    nodes = world.master.nodes
    assert {node.nid: node.address is None for node in nodes.of_type(NodeType.STORAGE)} == {
        1: False,
        2: True,
        7: False,
    }
    assert world.master.partitions.rows == [{1: UP, 2: OUT}] * 4
    assert your_nid(world, NodeType.STORAGE, 2, 9103) == 2


def test_a_client_whose_id_is_in_use_gets_another(world: MasterWorld) -> None:
    """Specification 3.14."""
    world.running(1)
    first = world.client()
    assert your_nid(world, NodeType.CLIENT, C1, None) == C1 + 1
    assert not first.closed
    first.lose()
    assert your_nid(world, NodeType.CLIENT, C1, None) == C1


@pytest.mark.parametrize(
    ("node_type", "wanted", "given"),
    [
        (NodeType.STORAGE, 9, 9),
        (NodeType.STORAGE, -9, 2),
        (NodeType.STORAGE, C1, 2),
        (NodeType.CLIENT, C1 + 5, C1 + 5),
        (NodeType.CLIENT, 9, C1),
        (NodeType.CLIENT, nid_namespace(NodeType.ADMIN) + 1, C1),
    ],
)
def test_an_id_of_another_type_is_not_given(
    world: MasterWorld, node_type: NodeType, wanted: int, given: int
) -> None:
    """Specification 3.15."""
    world.running(1)
    assert your_nid(world, node_type, wanted, 9300) == given
