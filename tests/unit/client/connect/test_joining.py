"""A client joins a cluster once more: its connections to storage nodes, and its pauses."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from neo.client.connect.connections import Backoff
from neo.client.errors import UnavailableError
from neo.client.settings import WAIT_SECONDS
from neo.master.ids import OidGenerator
from neo.protocol.enums import NodeType
from neo.protocol.ids import parse_nid
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerNewOIDs,
    AskNewOIDs,
    AskObject,
    RequestIdentification,
    StopOperation,
)
from tests.support.patience import wait_until
from tests.unit.client.committing import OID
from tests.unit.client.reading import answer
from tests.unit.client.scripted import CLIENT, scripted


def test_connections_to_storage_nodes_end_with_the_connection_to_the_master() -> None:
    """The identity with which they were made has ended (specification 16.3)."""
    with scripted([1], cache_size=0) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = answer(b"x")
        storage.load(OID)
        storage.load(OID)
        assert len(cluster.storages[1].asked(RequestIdentification)) == 1
        cluster.master.peer.close()
        storage.sync()
        storage.load(OID)
        assert len(cluster.storages[1].asked(RequestIdentification)) == 2


def test_a_client_that_is_told_to_stop_joins_again() -> None:
    """Specification 16.5."""
    with scripted([1]) as (cluster, storage):
        before = cluster.master.peer
        cluster.tell(StopOperation())

        def joined() -> bool:
            storage.sync()
            return cluster.master.peer is not before

        wait_until(joined, "it does not join")
        assert len(cluster.master.asked(RequestIdentification)) == 2


def test_oids_are_taken_by_the_hundred() -> None:
    """Specification 16.23."""
    with scripted([1]) as (cluster, storage):
        oids = OidGenerator()
        cluster.master.answers[AskNewOIDs] = lambda m: AnswerNewOIDs(oids.take(m.num_oids))
        taken = [storage.new_oid() for _ in range(250)]
        assert taken == sorted(set(taken))
        assert {m.num_oids for m in cluster.master.asked(AskNewOIDs)} == {100}


def test_pauses_double_up_to_a_second_until_the_wait_is_over() -> None:
    """Specification 16.26, 16.27."""
    assert WAIT_SECONDS == 30
    pauses: list[float] = []
    connections = Mock()
    connections.settings.wait_timeout = WAIT_SECONDS
    connections.host.now = lambda: sum(pauses)
    connections.host.sleep = pauses.append
    backoff = Backoff(connections)
    with pytest.raises(UnavailableError, match="did not answer for 30 s; last reason: it is away"):
        while True:
            backoff.wait("it is away")
    assert pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert set(pauses[6:-1]) == {1.0} and sum(pauses) == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize(
    ("accepted", "reason"),
    [
        (AcceptIdentification(NodeType.MASTER, 1, CLIENT), "is not a storage"),
        (AcceptIdentification(NodeType.STORAGE, 2, CLIENT), "is S2"),
        (AcceptIdentification(NodeType.STORAGE, 1, parse_nid("C2")), "accepted C2, not C1"),
        (AcceptIdentification(NodeType.STORAGE, 1, None), r"accepted \?, not C1"),
    ],
)
def test_another_node_behind_the_address_of_a_storage_node_is_asked_nothing(
    accepted: AcceptIdentification, reason: str
) -> None:
    """Specification 3.8."""
    with scripted([1], wait_timeout=0.05) as (cluster, storage):
        node = cluster.storages[1]
        node._identify = lambda peer, received: peer.answer(received.message_id, accepted)
        with pytest.raises(UnavailableError, match=reason):
            storage.load(OID)
        assert not node.asked(AskObject)
