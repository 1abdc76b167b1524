"""The rows of ``config`` that a storage node writes: names and forms (specification 14.9 to 14.11)."""

from __future__ import annotations

from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    AskPack,
    AskRecovery,
    NotifyReplicationDone,
    Replicate,
    StopOperation,
    Truncate,
)
from tests.unit.storage.replicas import Destination, full, storage_row
from tests.unit.storage.requests import store, vote
from tests.unit.storage.upstream import backup
from tests.unit.storage.world import World


def rows(world: World) -> dict[str, str]:
    """Return the rows on disk, without the position of the database."""
    world.settle()
    found = dict(world.backend.engine.read("SELECT name, value FROM config"))
    del found["_acknowledged"]
    return found


def test_a_node_writes_its_ids_when_it_has_joined_and_the_table_when_it_is_told(
    world: World,
) -> None:
    """Specification 14.11."""
    assert rows(world) == {"version": "3", "name": "test"}
    master = world.join(nid=7)
    assert rows(world) == {"version": "3", "name": "test", "nid": "7", "_greatest_nid": "7"}
    world.notify(master, storage_row(18))
    world.send_table(master, ptid=11)
    found = rows(world)
    assert (found["ptid"], found["replicas"], found["_greatest_nid"]) == ("11", "0", "18")


def test_a_pack_is_written_in_decimal_and_a_truncation_in_hexadecimal_digits(world: World) -> None:
    """Specification 14.9, 14.10."""
    master = world.operate()
    full(world, master)
    master.ask(AskPack(p64(16)))
    found = rows(world)
    assert (found["_pack_wanted"], found["_pack_tid"], found["_packed.0"]) == ("16", "16", "16")
    client = world.client(master)
    assert store(client, 20, 4, 16) is None
    vote(client, 20, 4)
    master.send(StopOperation())
    master.send(Truncate(p64(16)))
    master.ask(AskRecovery())
    assert rows(world)["truncate_tid"] == "0000000000000010"


def test_a_backup_writes_how_far_it_is_in_hexadecimal_digits(world: World) -> None:
    """Specification 14.9, 14.10."""
    master = backup(world)
    master.send(Replicate(ZERO_TID, "", {0: None, 1: None}))
    master.send(Replicate(p64(26), "", {0: None, 1: None}))
    assert rows(world)["backup_tid"] == "000000000000001a"
    master.send(StopOperation())
    master.send(Truncate(p64(18)))
    master.ask(AskRecovery())
    found = rows(world)
    assert "backup_tid" not in found and found["_left_backup_tid"] == "000000000000001a"


def test_a_cell_that_is_complete_is_announced(world: World) -> None:
    """Specification 14.10."""
    node = Destination(world)
    assert "_announced" not in rows(world)
    node.unfinished(12)
    node.serve(node.source(), 0, 12, {(12, 0): b"a"})
    node.master.take(NotifyReplicationDone)
    assert rows(world)["_announced"] == "0"
