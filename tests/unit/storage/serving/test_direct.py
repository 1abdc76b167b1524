"""Reads that another thread of the process makes itself (specification 6.30 to 6.34)."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from neo.protocol.ids import p64
from neo.protocol.packets import (
    AnswerObject,
    AnswerTransactionInformation,
    AskLockInformation,
    AskObject,
    AskObjectHistory,
    AskTransactionInformation,
    NotifyUnlockInformation,
    StopOperation,
)
from neo.storage.backend.api import BackendFailure
from neo.storage.backend.sqlite.engine import SQLite
from neo.storage.backend.sqlite.reader import IDLE_MAX, SQLiteReader
from neo.storage.serving.direct import DirectReads
from tests.unit.storage.requests import commit, data_of, load, store, vote
from tests.unit.storage.world import OUT, UP, End, World


def read(world: World, oid: int, before: int = 1 << 62) -> AnswerObject | None:
    return world.core.direct.answer(AskObject(p64(oid), None, p64(before)))


def open_files(path: Path) -> list[str]:
    """Return the files of a database that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # that of the listing
        if name.startswith(str(path)) and not name.endswith("-lock"):
            found.append(name.removeprefix(str(path)))
    return found


def test_a_direct_read_is_what_the_node_answers(world: World, master: End, client: End) -> None:
    commit(master, client, 10, 12, 1)
    store(client, 14, 1, serial=12)
    vote(client, 14, 1)
    master.ask(AskLockInformation(p64(14), p64(16)))
    master.send(NotifyUnlockInformation(p64(14)))
    assert load(client, 1).serial == p64(16)
    assert read(world, 1) is None
    world.settle()
    for m in (AskObject(p64(1), None, p64(16)), AskObject(p64(1), p64(12), None)):
        assert world.core.direct.answer(m) == client.ask(m)
        assert client.ask(m).next_serial == p64(16)
    assert read(world, 1) == load(client, 1)
    about = AskTransactionInformation(p64(16))
    told = world.core.direct.answer(about)
    assert isinstance(told, AnswerTransactionInformation) and told == client.ask(about)


def test_what_was_unlocked_is_committed_before_it_is_read(
    world: World, master: End, client: End
) -> None:
    """Specification 6.31, 6.32: without the second condition the read would find the revision before."""
    commit(master, client, 10, 12, 1)
    world.settle()
    read(world, 1)
    world.settle()
    first = read(world, 1)
    assert first is not None and first.serial == p64(12)
    store(client, 14, 1, serial=12)
    vote(client, 14, 1)
    master.ask(AskLockInformation(p64(14), p64(16)))
    master.send(NotifyUnlockInformation(p64(14)))
    assert load(client, 1).serial == p64(16), "unlocked, and not committed"
    assert read(world, 1) is None
    assert read(world, 1) is None
    assert world.host._calls.qsize() == 1, "the loop is told once"
    while world.host.run_calls():
        pass
    found = read(world, 1)
    assert found is not None and found.serial == p64(16)


def test_nothing_is_read_while_a_transaction_is_locked(
    world: World, master: End, client: End
) -> None:
    """Specification 6.31: its client may know that it is committed."""
    commit(master, client, 10, 12, 1)
    world.settle()
    read(world, 1)
    world.settle()
    store(client, 14, 1, serial=12)
    vote(client, 14, 1)
    assert read(world, 1) is not None
    master.ask(AskLockInformation(p64(14), p64(16)))
    assert read(world, 1) is None
    assert read(world, 2) is None


class Between:
    """Unlocks a transaction between the two conditions, whichever is looked at first."""

    def __init__(self, world: World, master: End) -> None:
        self._world, self._master = world, master
        self._looked = False

    def _look(self) -> None:
        if not self._looked:
            self._looked = True
            self._master.send(NotifyUnlockInformation(p64(14)))
            self._world.wait(lambda: not self._world.core.participant.any_locked, "still locked")

    @property
    def any_locked(self) -> bool:
        found = self._world.core.participant.any_locked
        self._look()
        return found

    @property
    def changes(self) -> int:
        found = self._world.core.participant.changes
        self._look()
        return found


def test_a_transaction_that_is_unlocked_between_the_conditions_is_not_missed(
    world: World, master: End, client: End
) -> None:
    """Specification 6.31."""
    commit(master, client, 10, 12, 1)
    world.settle()
    read(world, 1)
    world.settle()
    store(client, 14, 1, serial=12)
    vote(client, 14, 1)
    master.ask(AskLockInformation(p64(14), p64(16)))
    direct: Any = world.core.direct
    assert isinstance(direct, DirectReads)
    direct._unlocks = Between(world, master)
    assert read(world, 1) is None


def test_a_node_that_does_not_serve_or_lacks_the_cell_is_not_read(world: World) -> None:
    """Specification 6.30."""
    master = world.operate([[(1, UP)], [(1, OUT)]])
    client = world.client(master)
    commit(master, client, 10, 12, 0)
    read(world, 0)
    world.settle()
    assert read(world, 0) is not None
    assert world.core.direct.answer(AskObjectHistory(p64(0), 0, 1)) is None
    assert read(world, 1) is None
    assert read(world, 2) is None, "the node says whether there is such an object"
    master.send(StopOperation())
    assert read(world, 0) is None


def test_after_the_start_of_the_operation_a_commit_comes_first(world: World) -> None:
    """Verification has written rows (specification 6.32)."""
    master = world.operate()
    client = world.client(master)
    commit(master, client, 10, 12, 1)
    read(world, 1)
    world.settle()
    assert read(world, 1) is not None
    changes = world.core.participant.changes
    world.core.participant.operation_started()
    assert world.core.participant.changes > changes and read(world, 1) is None


def test_damaged_and_big_values_are_left_to_the_node(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node tells the client and the operator about damage."""
    commit(master, client, 10, 12, 1)
    read(world, 1)
    world.settle()
    world.backend.engine.write("UPDATE data SET value=?", data_of(11))
    world.settle()
    assert read(world, 1) is None
    with monkeypatch.context() as patched:
        patched.setattr(SQLiteReader, "read", lambda *_: [(12, None, 1, 0, bytes(20), None, None)])
        assert read(world, 1) is None


def test_threads_have_connections_of_their_own_which_are_closed(
    world: World, master: End, client: End, tmp_path: Path
) -> None:
    """None is left when the database is closed, so that its log is removed; the pool is bounded."""
    commit(master, client, 10, 12, 1)
    read(world, 1)
    world.settle()
    threads = 2 * IDLE_MAX
    inside, out = threading.Barrier(threads + 1), threading.Event()
    reader = world.backend.engine.reader
    whole = SQLiteReader._connect

    def together(self: SQLiteReader) -> sqlite3.Connection:
        connection = whole(self)
        inside.wait(60)
        assert out.wait(60)
        return connection

    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SQLiteReader, "_connect", together)
        reading = [threading.Thread(target=lambda: found.append(read(world, 1))) for _ in range(threads)]
        for thread in reading:
            thread.start()
        inside.wait(60)
        out.set()
        for thread in reading:
            thread.join(60)
    assert found == [load(client, 1)] * threads
    assert len(reader._idle) == IDLE_MAX
    world.close()
    assert open_files(tmp_path / "node.sqlite") == []
    assert not (tmp_path / "node.sqlite-wal").exists()
    with pytest.raises(BackendFailure, match="not open"):
        reader.read("SELECT 1")


def test_a_query_that_the_end_overtakes_leaves_no_connection(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    sqlite3.connect(path).close()
    reader = SQLiteReader(path, SQLite.dialect)
    reader.open()
    connect = reader._connect

    def closed_meanwhile() -> sqlite3.Connection:
        connection = connect()
        reader.close()
        return connection

    reader._connect = closed_meanwhile  # type: ignore[method-assign]
    assert reader.read("SELECT 1") == [(1,)]
    assert not reader._idle and open_files(tmp_path / "db") == []
