"""Packs of a storage node, and replication from one that has packed."""

from __future__ import annotations

from neo.protocol.ids import ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerFetchPrepared,
    AnswerPackState,
    AskFetchPrepared,
    AskPackState,
)
from tests.unit.storage.replicas import Destination, reply
from tests.unit.storage.requests import commit
from tests.unit.storage.world import End, World


def revisions(world: World, oid: int) -> list[int]:
    world.settle()
    history = world.backend.reads.history(p64(oid), 0, 100)
    return sorted(int.from_bytes(serial, "big") for serial, _ in history)


def rows(world: World, partition: int) -> list[tuple[int, int]]:
    found = world.backend.replication.objects_ascending(partition, ZERO_TID, ZERO_OID, p64(2**62), 100)
    return [(int.from_bytes(t, "big"), int.from_bytes(o, "big")) for t, o in found]


def full(world: World, master: End, *oids: int) -> None:
    """Two revisions of each object: 12 and 16 for the first, 22 and 26 for the second..."""
    client = world.client(master)
    for number, oid in enumerate(oids):
        first = 10 + 10 * number
        commit(master, client, first, first + 2, oid)
        commit(master, client, first + 4, first + 6, oid, serial=first + 2)


def returned(world: World) -> tuple[Destination, End]:
    """A node that had 12 and 16, and was away until 24."""
    master = world.operate()
    full(world, master, 0)
    world.host.advance(5)
    master.disconnect()
    node = Destination(world, ptid=2)
    node.unfinished(24)
    source = node.source(FEATURE_OURS)
    source.by_itself[AskFetchPrepared] = AnswerFetchPrepared([], [])
    return node, source


def state(source: End, tid: int) -> None:
    m = reply(source, AskPackState, AnswerPackState(p64(tid)))
    assert m == AskPackState(0)
