"""A storage node tells its features after the acceptance, or before it if the peer fetches at once."""

from __future__ import annotations

import pytest

from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    FEATURE_MAINTENANCE,
    FEATURES,
    AcceptIdentification,
    NotifyFeatures,
    RequestIdentification,
)
from tests.unit.storage.replicas import OTHER, storage_row
from tests.unit.storage.world import End, World


@pytest.mark.parametrize("nid", [2, None])
def test_a_storage_node_without_id_hears_of_features_first(
    world: World, master: End, nid: int | None
) -> None:
    """Specification 21.3."""
    world.notify(master, storage_row(2))
    end = world.stranger()
    stamp = None if nid is None else 22.0
    extra = {FEATURES: [FEATURE_MAINTENANCE]}
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
    assert FEATURE_MAINTENANCE in end.take(NotifyFeatures).features


def test_a_peer_that_announces_nothing_is_told_nothing(world: World, client: End) -> None:
    """Specification 21.2."""
    world.settle()
    assert not client.inbox
