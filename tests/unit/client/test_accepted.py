"""Storage nodes that a client dialed, and that are not what it looked for."""

from __future__ import annotations

import pytest

from neo.client.errors import UnavailableError
from neo.net.connection import Received
from neo.protocol.enums import NodeType
from neo.protocol.ids import parse_nid
from neo.protocol.packets import AcceptIdentification, AskObject
from tests.unit.client.committing import OID
from tests.unit.client.peers import Peer
from tests.unit.client.scripted import CLIENT, scripted


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

        def identify(peer: Peer, received: Received) -> None:
            peer.answer(received.message_id, accepted)

        node = cluster.storages[1]
        node._identify = identify
        with pytest.raises(UnavailableError, match=reason):
            storage.load(OID)
        assert not node.asked(AskObject)
