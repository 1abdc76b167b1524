"""Peers that a storage node accepts (specification 3.24 to 3.28)."""

from __future__ import annotations

import gc
import weakref

import pytest

from neo.protocol.codec import LIMIT_GUEST
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.ids import ZERO_HASH, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    PARTITIONS,
    AcceptIdentification,
    AddObject,
    AddPrepared,
    AddPreparedObject,
    AddTransaction,
    AskFetchPrepared,
    Message,
    NotifyFeatures,
    RequestIdentification,
)
from tests.unit.storage.replicas import OTHER, storage_row
from tests.unit.storage.world import C1, C2, End, World, check_refused, refused


def test_features_are_told_to_who_announces_some(world: World, master: End) -> None:
    """Specification 3.4, 21.2."""
    world.notify(master, world.client_row(C1))
    end = world.stranger()
    assert isinstance(world.identify(end, extra={FEATURES: ["oids"]}), AcceptIdentification)
    assert end.take(NotifyFeatures).features == [FEATURE_OURS]


def test_nobody_is_served_before_the_operation_starts(world: World) -> None:
    """Specification 3.25."""
    world.join()
    end = world.stranger()
    assert refused(world.identify(end)) == (ErrorCode.NOT_READY.value, "Retry Later")
    assert end.closed


def test_wrong_names_and_kinds_of_nodes_are_refused(world: World, master: End) -> None:
    """Specification 3.9, 3.24."""
    check_refused(
        world.identify(world.stranger(), name="other"),
        ErrorCode.PROTOCOL_ERROR,
        "invalid cluster name",
    )
    code, text = refused(world.identify(world.stranger(), node_type=NodeType.ADMIN))
    assert code == ErrorCode.PROTOCOL_ERROR.value


def test_clients_that_the_master_forgot_are_refused(world: World, master: End) -> None:
    """Specification 3.26, 3.27."""
    world.notify(master, world.client_row(C1))
    for changes in {"id_timestamp": 0.5}, {"id_timestamp": None}, {"nid": C2, "id_timestamp": 1.0}:
        end = world.stranger()
        assert refused(world.identify(end, **changes)) == (2, "unknown by master")
        assert end.closed


def test_a_client_newer_than_the_node_table_waits_for_it(world: World, master: End) -> None:
    """Specification 3.27."""
    end = world.stranger()
    answers = end.ask_later(RequestIdentification(NodeType.CLIENT, C1, None, "test", 99.0, {}))
    assert not answers and not end.closed
    world.timestamp = 99.0
    world.notify(master, (NodeType.CLIENT, None, C1, NodeState.RUNNING, 99.0))
    assert answers == [AcceptIdentification(NodeType.STORAGE, 1, C1)]


def test_who_is_vouched_for_by_the_master_may_send_long_messages(world: World, client: End) -> None:
    """Specification 2.34, 2.35, 3.28."""
    assert client.peer.trusted
    assert client.peer not in world.core.strangers
    guest = guest_of(world)
    assert not guest.peer.trusted
    assert guest.peer in world.core.strangers
    guest.peer.received(b"\x93\x00\x1e\x95\xc6" + (LIMIT_GUEST + 1).to_bytes(4, "big"))
    assert guest.closed
    assert f"{LIMIT_GUEST + 1} bytes are announced" in guest.complaint
    assert not client.closed


def guest_of(world: World) -> End:
    """A storage node without id, of some backup."""
    end = world.stranger()
    request = RequestIdentification(NodeType.STORAGE, None, ("127.0.0.1", 4), "test", None, {})
    answer = end.ask(request)
    assert answer == AcceptIdentification(NodeType.STORAGE, None, None)
    return end


def test_a_node_of_a_backup_with_another_number_of_partitions_is_refused_27_98(
    world: World, master: End
) -> None:
    """It would take a part of a partition for the whole."""
    count = len(world.core.cells.partitions)
    end = world.stranger()
    request = RequestIdentification(
        NodeType.STORAGE, None, None, "test", None, {PARTITIONS: count + 1}
    )
    code, text = refused(end.ask(request))
    assert code == ErrorCode.NOT_READY.value
    assert f"this cluster has {count} partitions, and yours {count + 1}" in text
    assert end.closed
    other = world.stranger()
    request = RequestIdentification(NodeType.STORAGE, None, None, "test", None, {PARTITIONS: count})
    assert other.ask(request) == AcceptIdentification(NodeType.STORAGE, None, None)


META = (b"", b"", b"", [p64(2)])


@pytest.mark.parametrize(
    "message",
    [
        AskFetchPrepared(0, [p64(10)]),
        AddPrepared(p64(10), b"xid", 5.0, b"", [0], META, []),
        AddPreparedObject(p64(10), p64(2), 0, ZERO_HASH, b"", None),
        AddTransaction(p64(10), b"", b"", b"", False, p64(10), []),
        AddObject(p64(2), p64(10), 0, ZERO_HASH, b"", None),
        NotifyFeatures([FEATURE_OURS]),
    ],
)
def test_a_guest_may_only_ask_for_what_is_committed(
    world: World, master: End, message: Message
) -> None:
    """Specification 3.28, 21.12."""
    guest = guest_of(world)
    guest.send(message, 1)
    assert guest.closed
    assert "unexpected" in guest.complaint


def test_nothing_of_a_guest_stays_after_its_connection(world: World, master: End) -> None:
    """With the garbage collector off."""
    gc.collect()
    gc.disable()
    try:
        guest = guest_of(world)
        # Half of a message.
        guest.peer.received(
            b"\x93\x00\x1e\x95\xc6" + LIMIT_GUEST.to_bytes(4, "big") + bytes(1 << 20)
        )
        held = weakref.ref(guest.peer.connection)
        guest.disconnect()
        del guest.peer  # this fake is its link; see test_transport
        del guest
        assert held() is None
    finally:
        gc.enable()


# -- features --------------------------------------------------------------------------------------


@pytest.mark.parametrize("nid", [2, None])
def test_a_storage_node_without_id_hears_of_features_first(
    world: World, master: End, nid: int | None
) -> None:
    """Specification 21.3."""
    world.notify(master, storage_row(2))
    end = world.stranger()
    stamp = None if nid is None else 22.0
    extra = {FEATURES: [FEATURE_OURS]}
    told: list[bool] = []

    def accepted(answer: object) -> None:
        assert isinstance(answer, AcceptIdentification)
        told.append(any(isinstance(m, NotifyFeatures) for _, m in end.inbox))

    end.connection.ask(
        RequestIdentification(NodeType.STORAGE, nid, OTHER, "test", stamp, extra), accepted
    )
    end._deliver()
    world.wait(lambda: bool(told), "the node does not answer")
    assert told == [nid is None]
    features = end.take(NotifyFeatures).features
    assert features == [FEATURE_OURS]


def test_a_peer_that_announces_nothing_is_told_nothing(world: World, client: End) -> None:
    """Specification 21.2."""
    world.settle()
    assert not client.inbox
