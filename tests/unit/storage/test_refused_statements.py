"""A database that refuses a statement ends a node once, not at each request (specification 14.49)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neo.protocol.enums import ErrorCode
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AnswerStoreTransaction,
    AskLockInformation,
    AskStoreTransaction,
    AskVoteTransaction,
)
from neo.storage.database import Refusals
from tests.unit.storage.requests import commit, data_of, load, store
from tests.unit.storage.world import End, World, refused


@pytest.fixture
def worlds(tmp_path: Path) -> Any:
    """Make one core after the other on the same database, as one process does."""
    refusals = Refusals()
    made: list[World] = []

    def make() -> World:
        for world in made:
            world.close()
        made.append(World(str(tmp_path / "db"), refusals=refusals))
        return made[-1]

    yield make
    for world in made:
        world.close()


def _occupy(world: World, ttid: int, oid: int) -> None:
    """Write a row that the vote of a transaction writes again."""
    world.backend.engine.write(
        "INSERT INTO tobj (`partition`, oid, tid, data_id, value_tid) VALUES (1, ?, ?, NULL, NULL)",
        *(oid, ttid),
    )


def _vote(client: End, ttid: int, oid: int) -> Any:
    request = AskStoreTransaction(p64(ttid), b"", b"", b"", [p64(oid)])
    return client.ask(request)


def _ended(world: World, client: End, ttid: int) -> None:
    """Have the database refuse a statement: the first time, that ends the core."""
    store(client, ttid, 1)
    _occupy(world, ttid, 1)
    client.ask_later(AskStoreTransaction(p64(ttid), b"", b"", b"", [p64(1)]))
    assert world.host.restarts == 1 and world.host.exit_code is None


def test_the_second_time_only_the_request_fails(worlds: Any) -> None:
    world = worlds()
    _ended(world, world.client(world.operate()), 10)
    world = worlds()
    master = world.operate()
    client = world.client(master)
    for ttid in 20, 22:
        assert store(client, ttid, 1) is None
        _occupy(world, ttid, 1)
        code, text = refused(_vote(client, ttid, 1))
        assert code == ErrorCode.DENIED.value and "tobj" in text
        world.backend.engine.write("DELETE FROM tobj")
    assert world.host.restarts == 0 and world.host.exit_code is None
    assert world.core.database.refusals.count == 2
    commit(master, client, 30, 32, 1)
    assert load(client, 1).data == data_of(30)


def test_what_a_refused_request_wrote_is_undone(worlds: Any) -> None:
    world = worlds()
    _ended(world, world.client(world.operate()), 10)
    world = worlds()
    client = world.client(world.operate())
    store(client, 20, 1)
    _occupy(world, 20, 1)
    refused(client.ask(AskStoreTransaction(p64(20), b"", b"", b"", [p64(1)])))
    world.settle()
    assert world.backend.engine.read("SELECT COUNT(*) FROM ttrans")[0][0] == 0


def test_a_step_of_the_background_is_undone_and_its_job_given_up(worlds: Any) -> None:
    world = worlds()
    _ended(world, world.client(world.operate()), 10)
    world = worlds()
    world.operate()
    _occupy(world, 20, 1)
    steps = []

    async def job() -> None:
        world.backend.tables.set_config("first", "1")
        await world.core.sleep(1)
        steps.append("second")
        world.backend.tables.set_config("second", "1")
        _occupy(world, 20, 1)
        steps.append("not reached")

    world.core.background.run(job())
    world.host.advance(2)
    assert steps == ["second"]
    assert world.host.restarts == 0 and world.host.exit_code is None
    names = {row[0] for row in world.backend.engine.read("SELECT name FROM config")}
    assert "first" in names and "second" not in names


def test_an_order_of_the_master_that_is_refused_again_ends_the_process(
    worlds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds()
    _ended(world, world.client(world.operate()), 10)
    world = worlds()
    master = world.operate()
    client = world.client(master)
    store(client, 20, 1)
    assert _vote(client, 20, 1) == AnswerStoreTransaction()
    monkeypatch.setattr(world.backend.commits, "lock", lambda *ids: _occupy(world, 20, 1))
    master.ask_later(AskLockInformation(p64(20), p64(21)))
    assert world.host.restarts == 0 and world.host.exit_code == 1


def test_votes_of_nodes_without_metadata_are_attempts(worlds: Any) -> None:
    world = worlds()
    _ended(world, world.client(world.operate()), 10)
    world = worlds()
    client = world.client(world.operate())
    store(client, 20, 1)
    _occupy(world, 20, 1)
    assert refused(client.ask(AskVoteTransaction(p64(20))))[0] == ErrorCode.DENIED.value
