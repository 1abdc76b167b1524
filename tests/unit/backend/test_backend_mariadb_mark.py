"""MariaDB: a server that lost what was acknowledged is found by the process that was told, or a mark."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from neo.storage.backend.acknowledged import from_line
from neo.storage.backend.api import BackendFailure, DatabaseAway, WentBack
from neo.storage.backend.mariadb import position as mariadb_position
from tests.support.mariadb import Server, running_server
from tests.support.mariadb import schema as schema_of
from tests.unit.backend.harness import Harness, serials


def commit(node: Harness, tid: int) -> None:
    """A transaction that is acknowledged."""
    backend = node.opened[-1]
    node.commit(backend, tid, {1: b"%d" % tid})
    node.wait(backend.engine.stored)


def refused(node: Harness) -> str:
    """Opening fails, and changes neither the mark nor the row."""
    assert node.mark is not None
    before = Path(node.mark).read_bytes()
    for _ in range(2):
        with pytest.raises(WentBack) as failure:
            node.open()
    assert Path(node.mark).read_bytes() == before
    return str(failure.value)


def kept(node: Harness) -> int:
    """The last transaction that the node serves."""
    backend = node.open()
    last = serials(backend, 1)
    node.close()
    return last[0] if last else 0


@pytest.fixture
def marked(mariadb: Harness, tmp_path: Path) -> Harness:
    """A node with a mark, and a transaction."""
    mariadb.mark = str(tmp_path / "mark")
    mariadb.ready()
    commit(mariadb, 1)
    return mariadb


@pytest.fixture
def behind(marked: Harness, mariadb_server: Server) -> Harness:
    """A node that has ended, whose database is an old copy, without transaction 2."""
    marked.close()
    copy = mariadb_server.copy_database(marked.database)
    marked.open()
    commit(marked, 2)
    marked.close()
    marked.database = copy
    return marked


def test_a_server_that_lost_what_it_acknowledged_is_refused_by_the_process_that_was_told(
    tmp_path: Path,
) -> None:
    with running_server() as server:
        node = Harness("MySQL", server.create_database())
        mark = tmp_path / "mark"
        node.mark = str(mark)
        backend = node.ready()
        node.commit(backend, 1, {1: b"1"})
        node.wait(backend.engine.stored)
        server.kill()
        shutil.copytree(server.data, tmp_path / "old")
        server.start()
        with pytest.raises(DatabaseAway):
            backend.close()
        backend.open()
        node.commit(backend, 2, {1: b"2"})
        node.wait(backend.engine.stored)
        server.kill()
        server.data.rename(tmp_path / "true")
        shutil.copytree(tmp_path / "old", server.data)
        server.start()
        with pytest.raises(DatabaseAway):
            backend.close()
        for _ in range(2):
            with pytest.raises(
                WentBack, match="log of the server.*stop this process, remove .*, and"
            ):
                backend.open()
        # Another process was told nothing but what the mark says.
        assert "remove " + str(mark) in refused(node)
        # The operator means it.
        mark.unlink()
        other = node.open()
        assert other.reads.load(bytes(7) + b"\1", None, None).data == b"1"
        other.close()
        backend.open(reset=True)
        node.close()


def test_an_empty_database_is_not_taken_for_the_one_in_use(mariadb: Harness) -> None:
    backend = mariadb.ready()
    mariadb.commit(backend, 1, {1: b"1"})
    mariadb.wait(backend.engine.stored)
    backend.close()
    other = mariadb.open(reset=True)
    other.close()
    with pytest.raises(WentBack, match="it is not the database that this node used last"):
        backend.open()


# -- with a file -------------------------------------------------------------------------------------


def test_an_older_copy_is_refused(behind: Harness) -> None:
    """Specification 14.37."""
    text = refused(behind)
    database = schema_of(behind.database)
    assert text.startswith(f"MariaDB database {database}/"), text
    assert "lacks transactions that this node acknowledged" in text
    assert "it is at generation" in text
    assert "docs/maintenance.md" in text
    assert "put back the right database, or restore all nodes from one backup" in text
    assert f"stop this process, remove {behind.mark}, and start it again" in text


def test_without_its_mark_it_is_served_and_gets_a_new_one(behind: Harness) -> None:
    assert behind.mark is not None
    Path(behind.mark).unlink()
    assert kept(behind) == 1
    assert Path(behind.mark).exists()
    assert kept(behind) == 1


def test_without_the_setting_it_is_served(behind: Harness) -> None:
    """Specification 14.37."""
    behind.mark = None
    assert kept(behind) == 1


def test_an_empty_database_takes_the_place(behind: Harness) -> None:
    """As the advice says: the others fill it. Then the mark speaks of the new one."""
    behind.open(reset=True)
    behind.close()
    assert kept(behind) == 0


def test_a_complete_database_is_served(marked: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was noted before: a mark that did not reach the disk proves less."""
    assert marked.mark is not None
    monkeypatch.setattr(mariadb_position, "GENERATION_SECONDS", 0)
    marked.opened[-1].close()
    marked.open()
    commit(marked, 10)
    marks = []
    for tid in range(11, 14):
        marks.append(Path(marked.mark).read_bytes())
        commit(marked, tid)
    marks.append(Path(marked.mark).read_bytes())
    assert len(set(marks)) == 4
    marked.close()
    for content in marks:
        Path(marked.mark).write_bytes(content)
        assert kept(marked) == 13


def test_the_mark_of_another_database_is_replaced(
    marked: Harness, mariadb_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    marked.close()
    first = marked.database
    marked.database = mariadb_server.create_database()
    assert kept(marked) == 0
    marked.database = first
    with caplog.at_level(logging.WARNING, "neo.storage"):
        assert kept(marked) == 1
    lost = "belongs to another database: a loss of acknowledged transactions in MariaDB database"
    assert lost in caplog.text
    caplog.clear()
    assert kept(marked) == 1
    assert not caplog.records


@pytest.mark.parametrize("content", [b"", b"neo-acknowledged 1 nonsense\n"])
def test_a_damaged_mark_is_replaced(
    marked: Harness, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    assert marked.mark is not None
    marked.close()
    Path(marked.mark).write_bytes(content)
    with caplog.at_level(logging.WARNING, "neo.storage"):
        assert kept(marked) == 1
    assert f"{marked.mark} is damaged" in caplog.text
    assert from_line(Path(marked.mark).read_bytes()) is not None


def test_a_database_that_has_no_position_is_behind_its_mark(
    marked: Harness, mariadb_server: Server
) -> None:
    """It was restored from a dump of an earlier version, which kept none."""
    marked.close()
    name = schema_of(marked.database)
    mariadb_server.query(f"DELETE FROM {name}.config WHERE name='_acknowledged'")
    assert "it is at generation 0" in refused(marked)


def test_two_nodes_do_not_share_a_mark(marked: Harness, mariadb_server: Server) -> None:
    """Specification 14.37."""
    assert marked.mark is not None
    before = Path(marked.mark).read_bytes()
    other = Harness("MySQL", mariadb_server.create_database())
    other.mark = marked.mark
    with pytest.raises(
        BackendFailure, match=f"another process uses {marked.mark}.*file of its own"
    ):
        other.open()
    assert Path(marked.mark).read_bytes() == before


def test_a_mark_that_cannot_be_used_is_named(
    mariadb: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb.mark = str(tmp_path / "folder" / "mark")
    with pytest.raises(
        BackendFailure, match=f"cannot use {mariadb.mark}, .*No such file"
    ) as failure:
        mariadb.open()
    assert not isinstance(failure.value, DatabaseAway)
    (tmp_path / "folder").mkdir()
    backend = mariadb.ready()
    full = OSError(28, "No space left on device")

    def pwrite(*args: Any) -> int:
        raise full

    # What is not noted is not acknowledged.
    mariadb.commit(backend, 1, {1: b"1"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        text = str(mariadb.failure(backend))
    assert f"cannot use {mariadb.mark}" in text and "No space left" in text
    backend.close()
    backend.open()


def test_a_generation_costs_its_first_commit_alone(
    marked: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But an opened database begins one: what it lost before must not be reached by counting
    (specification 14.37)."""
    assert marked.mark is not None
    now = [time.monotonic() + 1000]
    monkeypatch.setattr(mariadb_position, "monotonic", lambda: now[0])
    generations = []

    def note(tid: int) -> None:
        commit(marked, tid)
        position = from_line(Path(marked.mark or "").read_bytes())
        assert position is not None
        (row,) = marked.select(marked.opened[-1], "value", "config WHERE name='_acknowledged'")
        assert row[0].decode() == position.row()
        generations.append(position.generation)

    for tid in range(2, 5):
        note(tid)
    now[0] += mariadb_position.GENERATION_SECONDS
    note(5)
    marked.close()
    marked.open()
    note(6)
    first = generations[0]
    assert generations == [first, first, first, first + 1, first + 2]


def test_the_mark_is_synced_now_and_then(marked: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def count(fd: int) -> None:
        synced.append(fd)
        fsync(fd)

    now = [time.monotonic() + 1000]
    monkeypatch.setattr(mariadb_position, "monotonic", lambda: now[0])
    monkeypatch.setattr(mariadb_position, "GENERATION_SECONDS", 0)
    commit(marked, 2)
    commit(marked, 3)
    monkeypatch.setattr(os, "fsync", count)
    commit(marked, 4)
    assert not synced
    now[0] += mariadb_position.SYNC_SECONDS
    commit(marked, 5)
    commit(marked, 6)
    assert len(synced) == 1
    marked.close()
    assert len(synced) == 2
    marked.open()
    assert len(synced) == 4  # the folder too
