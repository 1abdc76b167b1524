"""A storage node of a backup cluster, and its upstream cluster, which the test plays."""

from __future__ import annotations

from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    PARTITIONS,
    AcceptIdentification,
    Address,
    NotifyFeatures,
    NotifyReady,
    RequestIdentification,
    StartOperation,
)
from tests.unit.storage.replicas import answer, storage_row, take_question
from tests.unit.storage.world import STORAGE, End, World

SOURCE: Address = ("127.0.0.1", 7001)


def backup(world: World, rows: object = None) -> End:
    """A node in operation whose cluster is a backup."""
    master = world.join()
    world.notify(master, storage_row(2))
    world.send_table(master, rows)  # type: ignore[arg-type]
    master.send(StartOperation(True))
    master.take(NotifyReady)
    return master


def upstream(world: World, *features: str) -> End:
    """A storage node of the upstream cluster is dialed and accepts."""
    world.wait(lambda: bool(world.host.dialed), "upstream is not dialed")
    source = world.take_dial()
    message_id, request = take_question(source, RequestIdentification)
    features_of = [FEATURE_OURS, *world.blobs]
    extra = {FEATURES: features_of, PARTITIONS: len(world.core.cells.partitions)}
    assert request == RequestIdentification(NodeType.STORAGE, None, STORAGE, "up", 1.5, extra)
    if features:
        source.send(NotifyFeatures(list(features)))
    answer(source, message_id, AcceptIdentification(NodeType.STORAGE, None, None))
    return source
