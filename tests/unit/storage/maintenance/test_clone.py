"""A copy of a database becomes a node of its own (specification 18)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from neo.protocol.enums import CellState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AcceptIdentification,
    Error,
    NotifyNodeInformation,
    RequestIdentification,
    SendPartitionTable,
    Truncate,
)
from neo.storage.backend.api import Cell, TransactionMeta
from neo.topology.masters import RETRY_SECONDS
from tests.unit.storage.requests import commit
from tests.unit.storage.world import M1, OUT, STORAGE, UP, End, World

CORRUPTED = CellState.CORRUPTED


class Copy(NamedTuple):
    adapter: str
    database: str

    def world(self, is_clone: bool = False) -> World:
        return World(self.database, is_clone=is_clone, adapter=self.adapter)


@pytest.fixture(params=["SQLite", "MySQL"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Copy:
    """Of S1, which has partitions 0 and 2 of four, and a corrupted cell of 1."""
    if request.param == "SQLite":
        made = Copy(request.param, str(tmp_path / "copy.sqlite"))
    else:
        server = request.getfixturevalue("mariadb_server")
        made = Copy(request.param, server.create_database())
    world = made.world()
    master = world.operate([[(1, UP)], [(1, CORRUPTED), (2, UP)], [(1, UP)], [(2, UP)]])
    commit(master, world.client(master), 16, 20, 0)
    master.send(Truncate(p64(7)))
    world.backend.tables.set_config("backup_tid", p64(20).hex())
    world.backend.commits.vote(p64(24), TransactionMeta(b"", b"", b"", []), [])
    world.settle()
    world.close()
    return made


@pytest.fixture
def clone(copy: Copy) -> Iterator[World]:
    world = copy.world(is_clone=True)
    yield world
    world.close()


def ask(world: World) -> tuple[End, int, RequestIdentification]:
    world.core.flush()
    master = world.take_dial()
    world.core.flush()
    message_id, request = master.inbox.pop(0)
    assert isinstance(request, RequestIdentification) and message_id is not None
    return master, message_id, request


def accept(master: End, message_id: int) -> None:
    answer = AcceptIdentification(NodeType.MASTER, M1, 3)
    master.connection.answer(message_id, answer)
    row = (NodeType.STORAGE, None, 3, NodeState.DOWN, 2.0)
    master.connection.send(NotifyNodeInformation(3.0, [row]))


def test_asks_for_an_id_and_for_cells_of_what_it_has(clone: World) -> None:
    """Specification 3.3, 18.2, 21.9."""
    _, _, request = ask(clone)
    assert request == RequestIdentification(
        NodeType.STORAGE, None, None, "test", None, request.extra
    )
    assert request.extra["new_nid"] == [0, 2] and request.extra["partitions"] == 4


def test_remembers_its_id_and_its_cells_and_ends(clone: World, copy: Copy) -> None:
    """Specification 18.1, 18.7, 18.8."""
    master, message_id, _ = ask(clone)
    accept(master, message_id)
    rows = [[(1, UP), (3, OUT)], [(2, UP)], [(1, UP), (3, OUT)], [(2, UP)]]
    master.send(SendPartitionTable(2, 0, rows))
    clone.wait(lambda: clone.host.exit_code is not None, "the clone does not end")
    assert clone.host.exit_code == 0
    again = copy.world()
    assert again.core.cluster.nid == 3
    own = [cell for cell in again.backend.tables.cells() if cell.nid == 3]
    assert own == [Cell(0, 3, 0), Cell(2, 3, 0)]
    # It has the data, but nothing of what was in progress.
    assert again.backend.reads.last_ids([0]) == (p64(0), p64(20))
    assert again.backend.commits.locked_transactions() == {}
    assert again.backend.tables.get_config("truncate_tid") is None
    assert again.backend.tables.get_config("backup_tid") is None
    again.join(nid=3)
    assert again.request.nid == 3 and again.request.address == STORAGE
    again.close()


def remembered(world: World) -> Any:
    """What a clone writes."""
    backend = world.backend
    settings = [backend.tables.get_config(name) for name in ("nid", "ptid", "truncate_tid", "backup_tid")]
    return settings, backend.tables.cells(), list(backend.commits.locked_transactions())


def test_a_master_of_another_cluster_changes_nothing(
    clone: World, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    """A master that does not compare the number of partitions has allocated an id already
    (specification 18.7)."""
    before = remembered(clone)
    assert before[0][0] == "1" and before[2]
    master, message_id, _ = ask(clone)
    accept(master, message_id)
    rows = [[(1, UP), (3, OUT)], [(2, UP)], [(1, UP), (3, OUT)], [(2, UP)], [(2, UP)]]
    master.send(SendPartitionTable(2, 0, rows))
    assert clone.host.exit_code == 1
    assert "the database has 4 partitions and the cluster 5" in caplog.text
    assert "neoctl drop S3" in caplog.text and "--reset" not in caplog.text
    again = copy.world()
    assert remembered(again) == before
    again.close()


def test_a_refusal_is_an_error_and_changes_nothing(
    clone: World, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 18.8."""
    before = remembered(clone)
    master, message_id, _ = ask(clone)
    refusal = Error(ErrorCode.PROTOCOL_ERROR.value, "it is no copy")
    master.answer(message_id, refusal)
    assert clone.host.exit_code == 1
    assert "the master refuses this clone: it is no copy" in caplog.text
    again = copy.world()
    assert remembered(again) == before
    again.close()


def test_a_cluster_that_is_not_ready_is_waited_for(clone: World) -> None:
    master, message_id, _ = ask(clone)
    master.answer(message_id, Error(ErrorCode.NOT_READY.value, "Retry Later"))
    clone.host.advance(RETRY_SECONDS)
    assert clone.host.exit_code is None
    assert ask(clone)[2].extra["new_nid"] == [0, 2]


def test_a_master_that_is_lost_in_between_is_an_error(clone: World) -> None:
    master, message_id, _ = ask(clone)
    accept(master, message_id)
    master._deliver()
    master.disconnect()
    assert clone.host.exit_code == 1


def test_an_empty_database_is_no_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(str(tmp_path / "empty.sqlite"), is_clone=True)
    assert world.host.exit_code == 1
    assert "no partition is in it" in caplog.text
