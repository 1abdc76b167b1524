"""The handler of the primary master is composed of parts."""

from __future__ import annotations

from collections import Counter

from neo.node.handler import routes
from neo.protocol.packets import AskLockInformation, NotifyNodeInformation, Ping, Replicate
from tests.unit.storage.world import World


def test_one_part_takes_each_message_of_the_master(world: World) -> None:
    handler = world.core._serve_master
    taken = Counter(message for part in handler._parts for message in routes(part))
    assert set(taken.values()) == {1}
    assert handler.table.keys() == {*taken, Ping}
    assert {NotifyNodeInformation, AskLockInformation, Replicate} <= taken.keys()
