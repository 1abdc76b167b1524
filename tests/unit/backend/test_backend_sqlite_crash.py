"""SQLite: what ``stored`` acknowledged survives a power cut, and nothing else is half visible.

A disk is imagined that keeps of the log only what was there at the last sync, or that and any part
of what was written since. The database file itself is written by checkpoints only, which sync it. Of
the mark it keeps what was written last, so that a database is refused if a mark was written too early.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from neo.storage.backend.api import WentBack
from neo.storage.backend.sqlite import engine as module
from neo.storage.backend.sqlite.wal_sync import Syncer
from tests.unit.backend.harness import Harness, p64, serials

OIDS = range(6)
HEADER_BYTES = 32


class Disk:
    """Knows the bytes of the log that were synced."""

    def __init__(self, node: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = Path(node.database)
        self.log = Path(node.database + "-wal")
        self.synced = b""
        self.syncs = 0
        real_sync, real_checkpoint = os.fdatasync, Syncer._checkpoint

        def fdatasync(fd: int) -> None:
            real_sync(fd)
            if os.fstat(fd).st_ino == os.stat(self.log).st_ino:
                self.syncs += 1
                self.synced = self.log.read_bytes()

        def checkpoint(syncer: Syncer, db: sqlite3.Connection) -> object:
            report = real_checkpoint(syncer, db)
            self.synced = self.log.read_bytes()  # SQLite syncs the log before it copies it
            return report

        monkeypatch.setattr(os, "fdatasync", fdatasync)
        monkeypatch.setattr(Syncer, "_checkpoint", checkpoint)

    def crash(self, target: Path, chance: random.Random) -> Harness:
        """A copy of the database as it may be found after a power cut now."""
        target.mkdir()
        shutil.copyfile(self.path, target / "db")
        shutil.copyfile(f"{self.path}.acknowledged", target / "db.acknowledged")
        log = bytearray(self.log.read_bytes())
        if log[:HEADER_BYTES] != self.synced[:HEADER_BYTES]:
            # The log started over: SQLite syncs the new header before it writes anything else.
            self.synced = bytes(log[:HEADER_BYTES]) + self.synced[HEADER_BYTES:]
        block = 512
        for start in range(0, len(log), block):
            kept = self.synced[start : start + block]
            if log[start : start + block] != kept and chance.random() < 0.5:
                log[start : start + block] = kept.ljust(len(log[start : start + block]), b"\0")
        (target / "db-wal").write_bytes(self.synced if chance.random() < 0.3 else bytes(log))
        return Harness("SQLite", str(target / "db"))


@pytest.mark.parametrize("checkpoint_rows", [10**9, 30], ids=["log only", "checkpoints"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_stored_survives_a_power_cut_at_any_moment(
    sqlite: Harness,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    checkpoint_rows: int,
) -> None:
    """Specification 14.23, 14.26."""
    monkeypatch.setattr(module, "CHECKPOINT_ROWS", checkpoint_rows)
    chance = random.Random(seed)
    disk = Disk(sqlite, monkeypatch)
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    acknowledged: list[int] = []
    for tid in range(1, 60):
        objects = chance.sample(OIDS, chance.randint(1, len(OIDS)))
        sqlite.vote(backend, tid, {oid: b"%d of %d" % (oid, tid) for oid in objects})
        waits = chance.choice((backend.engine.stored, backend.engine.written, None))
        if waits is not None:
            sqlite.wait(waits)
        backend.commits.unlock(p64(tid), p64(tid))
        if chance.random() < 0.5:
            backend.engine.stored(lambda tid=tid: acknowledged.append(tid))
        if chance.random() < 0.5:
            sqlite.wait(backend.engine.stored)
        if chance.random() < 0.3:
            durable = max(acknowledged, default=0)
            check_after_crash(disk.crash(tmp_path / f"crash{tid}", chance), durable)
    assert disk.syncs > 10


def test_a_lock_that_is_durable_has_a_vote_that_was_not(
    sqlite: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 7.55: a vote that had its room only, then the lock; power cuts before and after."""
    chance = random.Random(1)
    disk = Disk(sqlite, monkeypatch)
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    lost = 0
    for tid in range(1, 20):
        sqlite.vote(backend, tid, {1: b"1 of %d" % tid})
        syncs = disk.syncs
        sqlite.wait(backend.engine.written)
        assert disk.syncs == syncs
        node = disk.crash(tmp_path / f"voted{tid}", chance)
        lost += not node.open().commits.locked_transactions()
        node.close()
        backend.commits.lock(p64(tid), p64(tid))
        sqlite.wait(backend.engine.stored)
        node = disk.crash(tmp_path / f"locked{tid}", chance)
        after = node.open()
        assert after.commits.locked_transactions() == {p64(tid): p64(tid)}
        after.commits.validate(p64(tid), p64(tid))
        assert after.reads.load(p64(1), None, None).data == b"1 of %d" % tid
        node.close()
        backend.commits.unlock(p64(tid), p64(tid))
        sqlite.wait(backend.engine.stored)
    assert lost, "a vote that had its room only was never lost"


def check_after_crash(node: Harness, durable: int) -> None:
    backend = node.open()
    tids = [int.from_bytes(t, "big") for t in backend.reads.tids_descending(0, 1000, [0, 1, 2])]
    last = max(tids, default=0)
    assert last >= durable, "an acknowledged transaction is lost"
    assert tids == list(range(last, 0, -1)), "a transaction in the middle is lost"
    listed = {tid: set(backend.reads.transaction(p64(tid)).oids) for tid in tids}
    found: dict[int, set[bytes]] = {tid: set() for tid in tids}
    for oid in OIDS:
        for serial in serials(backend, oid):
            assert backend.reads.load(p64(oid), p64(serial), None).data == b"%d of %d" % (oid, serial)
            found[serial].add(p64(oid))
    assert found == listed, "a transaction is half visible"
    assert backend.engine.read("PRAGMA integrity_check")[0][0] == "ok"
    node.close()


def test_this_test_notices_a_sync_that_is_missing(
    sqlite: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(sqlite, monkeypatch)
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    sqlite.commit(backend, 1, {1: b"1 of 1"})
    sqlite.wait(backend.engine.stored)
    seeds = random.Random(1)
    with pytest.raises(WentBack, match="lacks transactions that this node acknowledged"):
        for i in range(20):
            check_after_crash(disk.crash(tmp_path / f"crash{i}", seeds), 1)


def test_this_test_notices_a_mark_that_is_written_before_the_sync(
    sqlite: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        backend.engine._position.synced()
        check(disk.crash(tmp_path / f"crash{disk.syncs}", random.Random(1)))
        real(fd)

    def check(node: Harness) -> None:
        try:
            node.open()
        except WentBack:
            refused.append(node)
        node.close()

    refused: list[Harness] = []
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    disk = Disk(sqlite, monkeypatch)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    sqlite.commit(backend, 1, {1: b"1 of 1"})
    sqlite.wait(backend.engine.stored)
    assert refused


def test_calls_that_come_during_a_sync_share_the_next_one(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 14.27."""
    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    disk = Disk(sqlite, monkeypatch)
    stored: list[int] = []
    for i in range(100):
        backend.tables.set_config("x", str(i))
        backend.engine.stored(lambda i=i: stored.append(i))
    sqlite.run_until(lambda: len(stored) == 100)
    assert disk.syncs == 2
    assert stored == list(range(100))


def test_reads_and_writes_go_on_while_a_sync_runs(
    sqlite: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threading import Event

    backend = sqlite.ready()
    sqlite.commit(backend, 10, {4: b"x"})
    sqlite.wait(backend.engine.stored)
    started, disk_is_ready = Event(), Event()

    def slow(fd: int) -> None:
        started.set()
        assert disk_is_ready.wait(60)

    monkeypatch.setattr(os, "fdatasync", slow)
    stored: list[int] = []
    sqlite.vote(backend, 11, {4: b"y"})
    backend.engine.stored(lambda: stored.append(1))
    assert started.wait(60)
    assert backend.reads.load(p64(4), None, None).data == b"x"
    backend.commits.unlock(p64(11), p64(11))
    assert backend.reads.load(p64(4), None, None).data == b"y"
    backend.engine.stored(lambda: stored.append(2))
    assert not stored
    disk_is_ready.set()
    sqlite.run_until(lambda: len(stored) == 2)
    assert stored == [1, 2]


def test_close_keeps_what_nobody_asked_to_store(sqlite: Harness) -> None:
    backend = sqlite.ready()
    sqlite.commit(backend, 10, {4: b"x"})
    stored: list[int] = []
    backend.tables.set_config("a", "b")
    backend.engine.stored(lambda: stored.append(1))
    backend.tables.set_config("c", "d")
    backend.engine.stored(lambda: stored.append(2))
    backend.close()
    sqlite.run_until(lambda: len(stored) == 2)
    assert sqlite.open().tables.get_config("c") == "d"
