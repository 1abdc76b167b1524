"""A storage node of a synchronous backup remembers until when that was in sync (specification 25.68)."""

from __future__ import annotations

from neo.protocol.ids import p64
from neo.protocol.packets import (
    SYNC_UNTIL,
    AskLastIDs,
    NotifyInSync,
    Replicate,
    StopOperation,
    Truncate,
)
from tests.unit.storage.upstream import backup
from tests.unit.storage.world import MakeWorld, World

UNTIL = 1795608051.25


def in_sync(make_world: MakeWorld) -> World:
    world = make_world()
    master = backup(world)
    assert SYNC_UNTIL not in world.request.extra
    master.send(Replicate(p64(14), "", {0: None, 1: None}))
    master.send(NotifyInSync(UNTIL - 1.0))
    master.send(NotifyInSync(UNTIL))
    world.settle()
    return world


def test_remembers_it_when_it_starts_again(make_world: MakeWorld) -> None:
    in_sync(make_world).close()
    world = make_world()
    world.join()
    assert world.request.extra[SYNC_UNTIL] == UNTIL


def test_forgets_it_with_the_end_of_backup_mode(make_world: MakeWorld) -> None:
    """The next backup mode begins with nothing."""
    in_sync(make_world).close()
    world = make_world()
    master = world.join()
    world.send_table(master)
    master.send(StopOperation())
    master.send(Truncate(p64(14)))
    world.settle()
    world.close()
    world = make_world()
    master = world.join()
    assert SYNC_UNTIL not in world.request.extra, "no master may take it for a backup again"
    world.send_table(master)
    master.ask(AskLastIDs())
    assert world.backend.tables.get_config("_sync_until") is None


def test_a_node_of_a_cluster_that_is_no_backup_ignores_it(make_world: MakeWorld) -> None:
    world = make_world()
    world.operate().send(NotifyInSync(UNTIL))
    world.settle()
    assert world.backend.tables.get_config("_sync_until") is None
