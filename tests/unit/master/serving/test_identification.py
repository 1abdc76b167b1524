"""Identification to the primary master (specification 3)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.packets import (
    AcceptIdentification,
    AddPendingNodes,
    AskPrimary,
    Error,
    NotifyNodeInformation,
    Ping,
    Pong,
    RequestIdentification,
    SendPartitionTable,
    SetNodeState,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MASTER_ADDRESS, MasterWorld


def identify(world: MasterWorld, **changes: Any) -> tuple[Remote, object]:
    request = RequestIdentification(NodeType.STORAGE, None, ("127.0.0.1", 9101), "test", None, {})
    remote = Remote.connect(world.master)
    return remote, remote.ask(replace(request, **changes))


def test_ids_are_given_from_the_namespace_of_the_type(world: MasterWorld) -> None:
    """Specification 3.7, 3.15."""
    world.running(1)
    given = {
        node_type: world.join(node_type, port=9500 + node_type.value)
        .take(AcceptIdentification)
        .your_nid
        for node_type in (NodeType.STORAGE, NodeType.CLIENT)
    }
    assert given == {NodeType.STORAGE: 2, NodeType.CLIENT: -0x1FFFFFFF}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "other"}, "invalid cluster name"),
        ({"address": MASTER_ADDRESS}, "address conflict"),
        ({"nid": 1}, "already connected"),
        ({"address": ("127.0.0.1", 9101), "nid": None}, "already connected"),
    ],
)
def test_conflicts_are_refused_and_disconnected(
    world: MasterWorld, changes: dict[str, object], text: str
) -> None:
    """Specification 1.10, 3.2, 3.9, 3.10, 3.14."""
    world.running(1)
    remote, answer = identify(world, **changes)
    error = error_of(answer)  # type: ignore[arg-type]
    assert error.code is ErrorCode.PROTOCOL_ERROR and text in error.message
    assert remote.closed


def test_clients_are_told_to_retry_until_the_cluster_runs(world: MasterWorld) -> None:
    """Specification 3.12."""
    remote = world.client()
    assert remote.take(Error) == Error(ErrorCode.NOT_READY.value, "Retry Later")
    assert remote.closed


def test_who_waits_to_join_is_logged_once_a_minute(
    world: MasterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(61):
        assert world.client().closed
        world.host.advance(1)
    refusals = [r.getMessage() for r in caplog.records if "may not join" in r.getMessage()]
    assert len(refusals) == 2
    assert refusals[0].startswith("client (") and refusals[0].endswith("NOT_READY: Retry Later")
    assert refusals[1].endswith("NOT_READY: Retry Later (59 times more in the last 60 s)")


def test_client_learns_masters_and_storages_but_no_other_client(world: MasterWorld) -> None:
    """Specification 4.4."""
    world.running(1)
    world.client()
    rows = world.client().take(NotifyNodeInformation).node_list
    assert [row[0] for row in rows] == [NodeType.CLIENT, NodeType.MASTER, NodeType.STORAGE]
    master = rows[1]
    assert master[3] is NodeState.RUNNING and master[4] is None


def test_others_hear_of_the_newcomer_before_it_is_accepted(world: MasterWorld) -> None:
    """Specification 3.19."""
    (storage,) = world.running(1)
    world.client()
    row = storage.take(NotifyNodeInformation).node_list[0]
    assert row[0] is NodeType.CLIENT and row[3] is NodeState.RUNNING


def test_loss_of_a_client_is_told_as_unknown(world: MasterWorld) -> None:
    """Specification 4.6."""
    (storage,) = world.running(1)
    client = world.client()
    storage.received.clear()
    client.lose()
    row = storage.take(NotifyNodeInformation).node_list[0]
    assert row[0] is NodeType.CLIENT and row[3] is NodeState.UNKNOWN


def test_admin_gets_an_empty_table_during_recovery(world: MasterWorld) -> None:
    """Specification 3.21."""
    table = world.join(NodeType.ADMIN, port=9000).take(SendPartitionTable)
    assert table == SendPartitionTable(None, 0, [[], [], [], []])


def test_ping_is_answered_before_identification(world: MasterWorld) -> None:
    """Specification 2.29, 3.1."""
    remote = Remote.connect(world.master)
    assert remote.ask(Ping()).result() == Pong()


def test_other_messages_before_identification_are_unexpected(world: MasterWorld) -> None:
    """Specification 3.1."""
    remote = Remote.connect(world.master)
    error = error_of(remote.ask(AskPrimary()))
    assert error.code is ErrorCode.PROTOCOL_ERROR and "unexpected AskPrimary" in error.message
    assert remote.closed


def test_an_upstream_introduces_its_admin_only_to_the_backup_that_it_watches(
    world: MasterWorld,
) -> None:
    """Specification 3.23, 4.4."""
    world.running(1)
    world.join(NodeType.ADMIN, port=9001, backup=["bak"]).identified.result()  # type: ignore[attr-defined]
    for extra, hears in (({"backup": b"bak"}, True), ({"backup": b"other"}, False), ({}, False)):
        rows = world.client(**extra).take(NotifyNodeInformation).node_list
        assert any(row[0] is NodeType.ADMIN for row in rows) is hears


def test_strangers_are_disconnected_after_a_while(world: MasterWorld) -> None:
    remote = Remote.connect(world.master)
    world.host.advance(60)
    assert remote.closed


def test_a_storage_that_moved_keeps_its_id(world: MasterWorld) -> None:
    """Specification 3.13."""
    world.storage(1).lose()
    moved = world.join(NodeType.STORAGE, 1, port=9777)
    assert moved.take(AcceptIdentification).your_nid == 1


def test_masters_are_refused_while_there_is_no_election(world: MasterWorld) -> None:
    """Specification 3.11."""
    _, answer = identify(world, node_type=NodeType.MASTER, address=("127.0.0.1", 9800))
    assert error_of(answer).code is ErrorCode.NOT_READY  # type: ignore[arg-type]


def test_a_newcomer_does_not_get_the_id_of_a_storage_node_that_was_dropped() -> None:
    """The database with that id may come back, and the table would call its data up to date
    (specification 3.16)."""
    world = MasterWorld(replicas=1)
    first, _ = world.running()
    first.lose()
    world.admin().ask(SetNodeState(1, NodeState.UNKNOWN)).result()
    newcomer = world.join(NodeType.STORAGE, port=9300)
    assert newcomer.identified.result().your_nid == 3  # type: ignore[attr-defined]
    # Another master does not know the dropped node, only that other nodes have greater ids.
    rows = world.master.partitions.row_list()
    other = MasterWorld(replicas=1)
    other.storage(2, 2, rows, nid=2)
    newcomer = other.join(NodeType.STORAGE, port=9300)
    assert newcomer.identified.result().your_nid == 3  # type: ignore[attr-defined]


def test_a_storage_is_vouched_for_when_it_is_a_node_of_the_cluster(world: MasterWorld) -> None:
    """Before that, any process that knows the name of the cluster could be the peer
    (specification 2.35)."""
    assert not world.storage(1).peer.trusted, "the cluster has not started"
    world = MasterWorld()
    (storage,) = world.running(1)
    newcomer = world.join(NodeType.STORAGE, port=9300)
    client = world.client()
    assert storage.peer.trusted and client.peer.trusted
    assert not newcomer.peer.trusted
    assert newcomer.peer in world.master.strangers
    nid = newcomer.take(AcceptIdentification).your_nid
    assert nid is not None
    world.admin().ask(AddPendingNodes([nid])).result()
    assert newcomer.peer.trusted
    assert newcomer.peer not in world.master.strangers
