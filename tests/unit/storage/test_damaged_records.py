"""Records whose data does not match its checksum, as a storage node answers for them."""

from __future__ import annotations

from hashlib import sha1

from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import AskRevisions
from tests.unit.storage.requests import commit, data_of, load
from tests.unit.storage.world import End, World, refused


def damage(world: World, master: End, client: End) -> None:
    """Commit objects 1 and 3, and damage the data of the first in the database."""
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 3)
    right = sha1(data_of(10)).digest()
    world.backend.engine.write("UPDATE data SET value=? WHERE hash=?", b"wrong", right)


def test_damaged_data_is_refused_and_other_objects_are_served(
    world: World, master: End, client: End
) -> None:
    """Specification 6.8."""
    damage(world, master, client)
    code, text = refused(load(client, 1))
    assert code == ErrorCode.CHECKING_ERROR.value and p64(1).hex() in text
    assert load(client, 3).data == data_of(14)
    assert not client.closed and world.host.restarts == 0


def test_a_page_has_damaged_data_as_it_is_for_the_reader_to_verify(
    world: World, master: End, client: End
) -> None:
    """Specification 6.28."""
    damage(world, master, client)
    answer = client.ask(AskRevisions(1, 0, ZERO_TID, p64(99), None, 1000, True))
    rows = [(row[0], row[3], row[5]) for row in answer.revision_list]
    assert rows == [
        (p64(1), sha1(data_of(10)).digest(), b"wrong"),
        (p64(3), sha1(data_of(14)).digest(), data_of(14)),
    ]
