"""Orders of a backup's master that a storage node executes from its own cluster, or not at all."""

from __future__ import annotations

from neo.protocol.enums import NodeType
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_MAINTENANCE,
    FEATURE_PREPARED,
    FEATURES,
    AcceptIdentification,
    NotifyReplicationDone,
    Replicate,
    RequestIdentification,
    StopOperation,
)
from tests.unit.storage.replicas import OTHER, Destination, reply
from tests.unit.storage.requests import data_of
from tests.unit.storage.upstream import SOURCE, backup
from tests.unit.storage.world import STORAGE, World


def test_an_order_without_the_name_of_a_cluster_is_for_a_node_of_the_own_one(world: World) -> None:
    """Specification 13.13."""
    master = backup(world)
    master.send(Replicate(ZERO_TID, "", {0: None, 1: None}))
    master.send(Replicate(p64(12), "", {0: OTHER}))
    world.wait(lambda: bool(world.host.dialed), "the other node is not dialed")
    source = world.take_dial()
    extra = {FEATURES: [FEATURE_MAINTENANCE, FEATURE_PREPARED]}
    request = reply(source, RequestIdentification, AcceptIdentification(NodeType.STORAGE, 2, 1))
    assert request == RequestIdentification(NodeType.STORAGE, 1, STORAGE, "test", 1.5, extra)
    Destination.serve(source, 0, 12, {(12, 2): data_of(12)})
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))


def test_an_order_that_comes_after_the_operation_is_ignored(world: World) -> None:
    """Specification 13.16."""
    master = backup(world)
    master.send(Replicate(ZERO_TID, "", {0: None, 1: None}))
    master.send(StopOperation())
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    world.settle()
    assert not world.host.dialed and not master.closed
