"""SQLite: what is refused, and how the log is kept short."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event, get_ident
from typing import Any

import pytest

from neo.storage.backend.api import BackendFailure, DatabaseGone
from neo.storage.backend.sqlite import engine as module
from neo.storage.backend.sqlite import wal_sync
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.backend.harness import Harness, p64


def database(node: Harness) -> sqlite3.Connection:
    return sqlite3.connect(node.database)


def test_a_file_that_is_not_a_database_is_refused_and_left_alone(sqlite: Harness) -> None:
    Path(sqlite.database).write_bytes(b"important text\n" * 100)
    with pytest.raises(BackendFailure, match="not a SQLite database.*another file"):
        sqlite.open(reset=True)
    assert Path(sqlite.database).read_bytes() == b"important text\n" * 100


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    node = Harness("SQLite", str(tmp_path / "missing" / "db"))
    with pytest.raises(BackendFailure, match=r"missing/db.*directory must exist"):
        node.open()


@contextmanager
def nobody() -> Iterator[None]:
    """Drop the rights of root during the block, which include writing to any file."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that any user can reach; the temporary directories of pytest are private."""
    with TemporaryDirectory(prefix="neo-") as directory:
        os.chmod(directory, 0o777)
        yield Path(directory)


def test_a_file_that_is_not_writable_is_refused(public: Path) -> None:
    (public / "db").touch(0o444)
    with (
        nobody(),
        pytest.raises(BackendFailure, match="not writable. Give it to the user"),
    ):
        Harness("SQLite", str(public / "db")).open()


def test_a_directory_that_is_not_writable_is_refused(public: Path) -> None:
    public.chmod(0o555)
    with (
        nobody(),
        pytest.raises(BackendFailure, match="db-lock: Permission denied.*writable by the user"),
    ):
        Harness("SQLite", str(public / "db")).open()


def test_a_database_of_another_program_is_refused(sqlite: Harness) -> None:
    with database(sqlite) as db:
        db.execute("CREATE TABLE songs (title)")
    db.close()
    with pytest.raises(BackendFailure, match="another program.*songs"):
        sqlite.open()


def test_a_refused_database_can_be_opened_once_it_is_right(sqlite: Harness) -> None:
    backend = sqlite.make()
    Path(sqlite.database).write_bytes(b"x" * 4096)
    with pytest.raises(BackendFailure):
        backend.open()
    Path(sqlite.database).unlink()
    backend.open()
    assert backend.tables.get_config("version") == "3"


def test_a_full_disk_is_a_failure_after_which_the_database_can_be_opened_anew(
    sqlite: Harness,
) -> None:
    backend = sqlite.ready()
    sqlite.commit(backend, 10, {4: b"kept"})
    sqlite.wait(backend.engine.stored)
    backend.engine._execute("PRAGMA max_page_count=30")
    with pytest.raises(BackendFailure, match="no space is left. Free space"):
        for tid in range(20, 1000):
            sqlite.commit(backend, tid, {4: bytes(5000)})
    with pytest.raises(BackendFailure, match="no space"):
        backend.reads.load(p64(4), None, None)
    with pytest.raises(BackendFailure, match="no space"):
        backend.engine.stored(lambda: None)
    backend.close()
    backend.open()
    assert backend.reads.load(p64(4), None, None).data == b"kept"
    assert backend.commits.locked_transactions() == {}
    sqlite.commit(backend, 2000, {4: b"again"})
    sqlite.wait(backend.engine.stored)


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), MemoryError("no memory")], ids=repr
)
def test_a_failing_sync_is_reported_and_acknowledges_nothing(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Specification 14.28."""
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)

    def fail(fd: int) -> None:
        raise error

    monkeypatch.setattr(os, "fdatasync", fail)
    backend.tables.set_config("name", "x")
    said = str(error.args[-1])
    assert said in str(sqlite.failure(backend))
    with pytest.raises(BackendFailure, match=said):
        backend.engine.stored(lambda: None)
    monkeypatch.undo()
    backend.close()
    backend.open()
    sqlite.failures.clear()
    sqlite.wait(backend.engine.stored)


@pytest.fixture
def synced_by(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that synced a log, one after the other."""
    threads: list[int] = []
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        threads.append(get_ident())
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return threads


def test_syncs_are_quick_on_average() -> None:
    """Specification 14.51. A slow one is forgotten after some time."""
    pace = wal_sync.Pace()
    for _ in range(wal_sync.AVERAGED):
        assert not pace.quick, "nothing is known of the disk yet"
        pace.add(0.0)
    assert pace.quick
    pace.add(5 * wal_sync.QUICK_SECONDS)
    assert pace.quick, "one in many may be slower"
    pace.add(1.0)
    slow = 0
    while not pace.quick:
        pace.add(0.0)
        slow += 1
    assert wal_sync.AVERAGED < slow < 10 * wal_sync.AVERAGED


def test_a_transaction_that_is_alone_is_synced_by_the_loops_thread_while_the_disk_is_quick(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch, synced_by: list[int]
) -> None:
    """Specification 14.51."""
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    synced_by.clear()

    def sync(number: int, alone: bool) -> int:
        sqlite.commit(backend, number, {4: b"x%d" % number})
        sqlite.wait(partial(backend.engine.stored, alone=alone))
        return synced_by[-1]

    monkeypatch.setattr(wal_sync, "QUICK_SECONDS", 1e9)
    assert sync(1, alone=True) != get_ident(), "nothing is known of the disk yet"
    known = [sync(tid, alone=True) for tid in range(2, wal_sync.AVERAGED + 2)]
    assert known[-1] == get_ident()
    assert sync(100, alone=False) != get_ident(), "others wait, and share the next one"
    monkeypatch.setattr(wal_sync, "QUICK_SECONDS", 0.0)
    assert sync(101, alone=True) != get_ident(), "the disk is slow"
    assert len(synced_by) == wal_sync.AVERAGED + 3
    sqlite.restart(backend)


def test_a_sync_that_fails_in_the_loops_thread_acknowledges_nothing(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 14.28."""
    monkeypatch.setattr(wal_sync.Pace, "quick", True)
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    sqlite.commit(backend, 10, {4: b"x"})
    done: list[bool] = []
    backend.engine.stored(lambda: done.append(True), alone=True)
    assert not sqlite.failures, "the core hears of it later, like of any other failure"
    sqlite.run_until(lambda: sqlite.failures)
    assert "Input/output error" in str(sqlite.failures[0])
    assert not done
    sqlite.failures.clear()


def test_other_programs_may_look_but_not_write(sqlite: Harness) -> None:
    """Specification 14.29."""
    backend = sqlite.ready()
    sqlite.commit(backend, 10, {4: b"x"})
    sqlite.wait(backend.engine.stored)
    other = sqlite3.connect(sqlite.database, timeout=0)
    assert other.execute("SELECT COUNT(*) FROM show_obj").fetchone() == (1,)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("DELETE FROM obj")
    other.close()


def test_no_sync_is_made_when_nothing_was_written(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    syncs: list[int] = []
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    sqlite.wait(backend.engine.stored)
    assert not syncs
    backend.tables.set_config("name", "x")
    sqlite.wait(backend.engine.stored)
    assert len(syncs) == 1


def test_what_has_its_room_without_a_sync_is_synced_before_it_is_promised(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 7.54: also if nothing was written since."""
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    syncs: list[int] = []
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    backend.tables.set_config("name", "x")
    sqlite.wait(backend.engine.written)
    assert not syncs
    with database(sqlite) as other:
        assert other.execute("SELECT value FROM config WHERE name='name'").fetchone() == ("x",)
    sqlite.wait(backend.engine.stored)
    assert len(syncs) == 1


def test_nothing_is_committed_while_a_sync_runs_and_what_waits_has_its_room_after_it(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    syncs: list[int] = []
    ends = Event()

    def sync(fd: int) -> None:
        syncs.append(fd)
        assert ends.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(os, "fdatasync", sync)
    backend.tables.set_config("name", "x")
    calls: list[str] = []
    backend.engine.stored(lambda: calls.append("stored"))
    backend.tables.set_config("name", "y")
    backend.engine.written(lambda: calls.append("written"))
    with database(sqlite) as other:
        assert other.execute("SELECT value FROM config WHERE name='name'").fetchone() == ("x",)
    ends.set()
    sqlite.run_until(lambda: len(calls) == 2)
    assert sorted(calls) == ["stored", "written"]
    assert len(syncs) == 1


def test_a_full_disk_is_noticed_when_room_is_taken(sqlite: Harness) -> None:
    """Specification 7.54."""
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    refusing = sqlite3.OperationalError("database or disk is full")
    refusing.sqlite_errorname = "SQLITE_FULL"
    real = backend.engine._db

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def execute(self, sql: str, *args: Any) -> Any:
            if sql == "COMMIT":
                raise refusing
            return real.execute(sql, *args)

    backend.tables.set_config("name", "x")
    backend.engine._db = Full()
    with pytest.raises(BackendFailure, match="no space is left"):
        backend.engine.written(lambda: None)
    backend.engine._db = real


def test_the_first_write_after_opening_anew_is_synced(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    for i in range(20):
        backend.close()
        backend.open()
        syncs: list[int] = []
        monkeypatch.setattr(os, "fdatasync", syncs.append)
        for j in range(i):
            backend.tables.set_config("name", f"{i} {j}")
        sqlite.wait(backend.engine.stored)
        assert len(syncs) == (i > 0), f"{i} writes"


def log_size(node: Harness) -> int:
    return os.path.getsize(node.database + "-wal")


def test_the_log_is_copied_back_and_starts_over(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_ROWS", 40)
    backend = sqlite.ready()
    for tid in range(1, 400):
        sqlite.commit(backend, tid, {tid % 50: b"%d" % tid})
        sqlite.wait(backend.engine.stored)
    assert log_size(sqlite) < 100 * 4096 * 4, "without checkpoints it is more than 3 MB"
    assert backend.reads.load(p64(49), None, None).data == b"399"


def test_the_log_stays_short_when_writing_never_pauses(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_ROWS", 40)
    monkeypatch.setattr(module, "LOG_BYTES_MAX", 400_000)
    backend = sqlite.ready()
    durable: list[int] = []
    written, noise = 0, Random(1)
    while len(durable) < 400:
        # Always some writes on top of those that are being synced.
        while written < len(durable) + 5:
            written += 1
            backend.tables.set_config("counter", str(written))
            for oid in range(3):
                sqlite.store_data(backend, oid, noise.randbytes(1000))
            backend.engine.stored(lambda: durable.append(1))
        known = len(durable)
        sqlite.run_until(lambda known=known: len(durable) > known)
    assert log_size(sqlite) < 1_200_000, "without the limit it is the whole 400 x 3 pages and more"
    assert not sqlite.failures


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_nothing_is_promised_when_a_file_of_the_database_is_gone(
    sqlite: Harness, suffix: str, how: str
) -> None:
    backend = sqlite.ready()
    sqlite.commit(backend, 10, {4: b"old"})
    sqlite.wait(backend.engine.stored)
    name = Path(sqlite.database + suffix)
    if how == "deleted":
        name.unlink()
    else:
        name.rename(f"{name}.away")
    if how == "replaced":
        name.write_bytes(b"of somebody else")
    sqlite.vote(backend, 11, {4: b"new"})
    failure = sqlite.failure(backend)
    assert isinstance(failure, DatabaseGone) and str(failure).startswith(f"{name} is ")
    backend.close()
    if suffix:
        assert sqlite.open().reads.load(p64(4), None, None).data == b"old"
    elif how == "replaced":
        assert name.read_bytes() == b"of somebody else", "closing must not touch it"
    else:
        assert not name.exists()


def test_a_checkpoint_does_not_make_an_empty_database_where_one_was_deleted(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_ROWS", 0)
    backend = sqlite.open(reset=True)
    Path(sqlite.database).unlink()
    backend.tables.set_config("name", "value")
    sqlite.failure(backend)
    assert not Path(sqlite.database).exists()


def test_closing_tells_that_the_database_is_gone(sqlite: Harness) -> None:
    backend = sqlite.ready()
    Path(sqlite.database).unlink()
    with pytest.raises(DatabaseGone, match="is gone: it was deleted, moved or replaced"):
        backend.close()
    sqlite.opened.clear()


def test_a_name_with_a_tilde_is_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    node = Harness("SQLite", "~/db")
    node.open()
    node.close()
    assert (tmp_path / "db").exists()


def test_big_values_where_python_cannot_open_them_in_place(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's 3.11.2 takes no row number above 31 bits; the program notices when it starts."""

    class Old(sqlite3.Connection):
        def blobopen(self, table: str, column: str, row: int, **options: Any) -> sqlite3.Blob:
            if row >= 1 << 31:
                raise OverflowError("Python int too large to convert to C int")
            return super().blobopen(table, column, row, **options)

    connect = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(connect, factory=Old))
        package, _, name = module.__name__.rpartition(".")
        patch.setattr(sys.modules[package], name, module)  # given back afterwards
        patch.delitem(sys.modules, module.__name__)
        backend = sqlite.ready()
        data = Random(1).randbytes(5 << 20)
        sqlite.commit(backend, 10, {4: data})
        assert backend.reads.load(p64(4), None, None).data == data
