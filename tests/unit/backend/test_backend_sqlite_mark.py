"""SQLite: a database that lacks what was acknowledged is not opened, and no other one is refused.

A copy of the files is what ``kill -9`` leaves. Some of them are damaged, cut, old or gone then.
"""

from __future__ import annotations

import logging
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neo.storage.backend.acknowledged import Acknowledged
from neo.storage.backend.api import WentBack
from neo.storage.backend.sql_backend import SQLBackend
from neo.storage.backend.sqlite import engine as module
from tests.unit.backend.harness import UP, Harness, p64, serials

DATABASE, LOG, MARK = "db", "db-wal", "db.acknowledged"
FRAME_BYTES = 24 + 4096


def commit(node: Harness, tid: int) -> None:
    """A transaction that is acknowledged."""
    backend = node.opened[-1]
    node.commit(backend, tid, {1: b"%d of 1" % tid, 2: b"%d of 2" % tid})
    node.wait(backend.engine.stored)


def checkpoint(node: Harness, monkeypatch: pytest.MonkeyPatch, tid: int) -> None:
    """A transaction after which the log is copied into the database."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "CHECKPOINT_ROWS", -1)
        commit(node, tid)


def killed(node: Harness, target: Path) -> Harness:
    """Another node, with the files as they are at this moment."""
    folder = Path(node.database).parent
    target.mkdir()
    for name in (DATABASE, LOG, MARK):
        if (folder / name).exists():
            shutil.copyfile(folder / name, target / name)
    return Harness("SQLite", str(target / DATABASE))


def kept(node: Harness) -> int:
    """The last transaction that the node serves."""
    backend = node.open()
    last = serials(backend, 1)
    node.close()
    return last[0] if last else 0


@pytest.fixture
def ready(sqlite: Harness) -> Harness:
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    for tid in range(1, 6):
        commit(sqlite, tid)
    return sqlite


def flip(path: Path, at: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def refused(node: Harness) -> str:
    """Opening fails, and changes no file."""
    folder = Path(node.database).parent
    before = {name: (folder / name).read_bytes() for name in (DATABASE, MARK)}
    log = (folder / LOG).read_bytes() if (folder / LOG).exists() else b""
    for _ in range(2):
        with pytest.raises(WentBack) as failure:
            node.open()
    assert before == {name: (folder / name).read_bytes() for name in (DATABASE, MARK)}
    assert ((folder / LOG).read_bytes() if (folder / LOG).exists() else b"") == log
    return str(failure.value)


def used(log: Path) -> int:
    """Bytes of the log with the salts of its header."""
    content = log.read_bytes()
    end = 32
    while content[end + 8 : end + 16] == content[16:24]:
        end += FRAME_BYTES
    return end


# -- what was acknowledged is lost --------------------------------------------------------------------


def test_a_bit_that_flips_anywhere_in_the_log_is_found(ready: Harness, tmp_path: Path) -> None:
    chance = random.Random(1)
    log = Path(ready.database + "-wal")
    # Bytes 4 and 16 to 23 of the log, its format and salts, belong to its header; 12 to 15 count.
    places = [4, 16, 20, 32, 32 + 8, 32 + 16, used(log) - 1]
    places += [chance.randrange(32, used(log)) for _ in range(30)]
    for number, place in enumerate(places):
        node = killed(ready, tmp_path / str(number))
        flip(Path(node.database + "-wal"), place, 1 << chance.randrange(8))
        assert "lacks transactions that this node acknowledged" in refused(node), place


def test_a_log_that_lost_its_end_is_found(ready: Harness, tmp_path: Path) -> None:
    """Specification 14.31."""
    log = Path(ready.database + "-wal")
    frames = (used(log) - 32) // FRAME_BYTES
    for number, size in enumerate([0, 32, 33, used(log) - 1, used(log) - FRAME_BYTES]):
        node = killed(ready, tmp_path / str(number))
        cut(Path(node.database + "-wal"), size)
        text = refused(node)
        if size > 33:
            assert f"and {frames} were acknowledged" in text
    assert f"remove {node.database}.acknowledged" in text
    assert "docs/maintenance.md" in text


def test_what_is_left_of_a_log_that_was_copied_is_not_put_over_newer_pages(
    ready: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is complete, and damaged if the beginning of the log is read again."""
    checkpoint(ready, monkeypatch, 6)
    log = Path(ready.database + "-wal")
    for number in range(1, (used(log) - 32) // FRAME_BYTES):
        node = killed(ready, tmp_path / str(number))
        flip(Path(node.database + "-wal"), 32 + number * FRAME_BYTES + 500)
        assert "its write-ahead log is damaged or cut" in refused(node)


def test_a_log_that_is_gone_is_found(
    ready: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 14.32."""
    checkpoint(ready, monkeypatch, 6)
    commit(ready, 7)
    node = killed(ready, tmp_path / "killed")
    Path(node.database + "-wal").unlink()
    assert "it is an older copy, or its write-ahead log is lost" in refused(node)


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("how", ["served on", "ended", "checkpoint"])
def test_an_old_copy_is_found(
    ready: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, with_log: bool
) -> None:
    """Specification 14.31."""
    killed(ready, tmp_path / "old")
    commit(ready, 6)
    if how == "checkpoint":
        checkpoint(ready, monkeypatch, 7)
    elif how == "ended":
        ready.close()
    node = killed(ready, tmp_path / "now")
    shutil.copyfile(tmp_path / "old" / DATABASE, node.database)
    if with_log:
        shutil.copyfile(tmp_path / "old" / LOG, node.database + "-wal")
    else:
        Path(node.database + "-wal").unlink(missing_ok=True)
    refused(node)


def test_a_database_of_an_earlier_version_beside_a_newer_mark_is_found(
    ready: Harness, tmp_path: Path
) -> None:
    ready.close()
    node = killed(ready, tmp_path / "now")
    with sqlite3.connect(node.database) as database:
        database.execute("DELETE FROM config WHERE name='_acknowledged'")
    database.close()
    refused(node)


# -- and nothing is refused that is complete -------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_it_is_served(
    sqlite: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(module, "CHECKPOINT_ROWS", chance.choice((10, 60)))
    backend = sqlite.ready()
    for tid in range(1, 40):
        sqlite.commit(backend, tid, {1: b"%d of 1" % tid})
        if chance.random() < 0.2:
            backend.maintenance.truncate(p64(tid), range(3))
        asked: list[bool] = []
        backend.engine.stored(lambda asked=asked: asked.append(True))
        if chance.random() < 0.3:
            kept(killed(sqlite, tmp_path / f"in a sync {tid}"))
        sqlite.run_until(lambda asked=asked: asked)
        if chance.random() < 0.3:
            node = killed(sqlite, tmp_path / str(tid))
            if chance.random() < 0.5:
                # Somebody looks first: SQLite copies the log back, and deletes it.
                looks = sqlite3.connect(node.database)
                looks.execute("SELECT * FROM config").fetchall()
                looks.close()
            assert kept(node) == tid
            assert kept(node) == tid
        if chance.random() < 0.1:
            sqlite.close()
            backend = sqlite.open()


def test_what_is_deleted_is_not_missed(ready: Harness, tmp_path: Path) -> None:
    backend = ready.opened[-1]
    backend.maintenance.truncate(p64(2), range(3))
    ready.wait(backend.engine.stored)
    assert kept(killed(ready, tmp_path / "truncated")) == 2
    while backend.maintenance.drop_partition(1, 1000):
        pass
    ready.wait(backend.engine.stored)
    node = killed(ready, tmp_path / "dropped")
    assert kept(node) == 0
    ready.close()
    assert kept(ready) == 0


def test_an_erased_database_begins_anew(ready: Harness, tmp_path: Path) -> None:
    node = killed(ready, tmp_path / "damaged")
    Path(node.database + "-wal").unlink()
    refused(node)
    node.open(reset=True)
    node.opened[-1].tables.change_cells(1, 0, [(p, 1, UP) for p in range(3)], 1, True)
    commit(node, 9)
    assert kept(killed(node, tmp_path / "after")) == 9
    node.close()


def test_an_empty_database_beside_a_mark_begins_anew(ready: Harness, tmp_path: Path) -> None:
    node = killed(ready, tmp_path / "gone")
    for suffix in "", "-wal":
        Path(node.database + suffix).unlink()
    assert kept(node) == 0


def test_a_database_without_mark_is_served_and_gets_one(ready: Harness, tmp_path: Path) -> None:
    node = killed(ready, tmp_path / "killed")
    cut(Path(node.database + "-wal"), 32 + FRAME_BYTES)
    mark = Path(node.database + ".acknowledged")
    mark.unlink()
    assert kept(node) < 5
    assert mark.exists()
    node.opened.append(node.open())
    commit(node, 9)
    later = killed(node, tmp_path / "later")
    cut(Path(later.database + "-wal"), 32)
    refused(later)
    node.close()


def test_a_database_of_an_earlier_version_is_served(ready: Harness) -> None:
    ready.close()
    with sqlite3.connect(ready.database) as database:
        database.execute("DELETE FROM config WHERE name='_acknowledged'")
    database.close()
    Path(ready.database + ".acknowledged").unlink()
    assert kept(ready) == 5


@pytest.mark.parametrize("content", [b"", b"neo-acknowledged 1", b"\xff" * 100, b"x y\n"])
def test_a_damaged_mark_is_made_anew_with_a_warning(
    ready: Harness, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    """Specification 14.31."""
    ready.close()
    mark = Path(ready.database + ".acknowledged")
    mark.write_bytes(content)
    assert kept(ready) == 5
    assert f"{mark} is damaged, a new one is made" in caplog.text
    assert mark.read_bytes() != content


def test_a_database_that_was_away_while_an_empty_one_was_made_is_served(
    ready: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    ready.close()
    path = Path(ready.database)
    path.rename(path.with_name("unmounted"))
    assert kept(ready) == 0
    path.with_name("unmounted").rename(path)
    assert kept(ready) == 5
    assert ".acknowledged belongs to another database" in caplog.text
    caplog.clear()
    assert kept(ready) == 5
    assert not caplog.records


def test_the_whole_folder_may_be_an_old_one(
    ready: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = killed(ready, tmp_path / "old")
    checkpoint(ready, monkeypatch, 6)
    assert kept(node) == 5


# -- holes that prove nothing ---------------------------------------------------------------------------


def test_commits_behind_a_hole_that_nobody_was_promised_are_told(
    ready: Harness,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A power cut leaves that of a part of the log that was not synced."""
    log = Path(ready.database + "-wal")
    synced = used(log)
    mark = Path(ready.database + ".acknowledged").read_bytes()
    commit(ready, 6)
    commit(ready, 7)
    node = killed(ready, tmp_path / "power cut")
    flip(Path(node.database + "-wal"), synced + 100)
    Path(node.database + ".acknowledged").write_bytes(mark)
    caplog.set_level(logging.WARNING)
    assert kept(node) == 5
    assert "commits at the end of the write-ahead log are dropped" in caplog.text
    caplog.clear()
    assert kept(killed(ready, tmp_path / "whole")) == 7
    assert not caplog.records


def test_a_transaction_that_was_never_committed_is_no_hole(
    ready: Harness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend: Any = ready.opened[-1]
    backend.engine._execute("PRAGMA cache_size=10")
    ready.vote(backend, 6, {oid: bytes(9000) for oid in range(10, 40)})
    log = Path(ready.database + "-wal")
    assert used(log) > 32 + 40 * FRAME_BYTES, "nothing of it is in the log"
    assert kept(killed(ready, tmp_path / "killed")) == 5
    assert not caplog.records


# -- within a process ------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
def test_a_process_remembers_what_it_acknowledged(
    sqlite: Harness, tmp_path: Path, whole: bool
) -> None:
    """Also if the whole folder went back, as with a snapshot of the file system, or is empty."""
    acknowledged = Acknowledged()

    def make(node: Harness) -> Callable[[], None]:
        backend = SQLBackend(
            module.SQLite(
                node.database, node.schedule, node.failures.append, acknowledged=acknowledged
            )
        )
        node.opened.append(backend)
        return backend.open

    make(sqlite)()
    sqlite.opened[-1].tables.change_cells(1, 0, [(p, 1, UP) for p in range(3)], 1, True)
    commit(sqlite, 1)
    old = killed(sqlite, tmp_path / "old")
    commit(sqlite, 2)
    sqlite.close()
    make(sqlite)()
    sqlite.close()
    if not whole:
        old = Harness("SQLite", str(tmp_path / "new"))
    with pytest.raises(WentBack, match="stop this process"):
        make(old)()
    old.close()
    make(sqlite)()
