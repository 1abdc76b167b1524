"""The logs of a node: crashes, failing disks, mistakes of operators, and the messages about them."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from neo.transactor.codec import records
from neo.transactor.disk import LogFile, StoreError
from neo.transactor.durable import Begun
from neo.transactor.frames import END, frame
from neo.transactor.members import first_members
from neo.transactor.messages import Entry, Held, Kind, Known, Record, Sid, Spec, Vote, Voter
from neo.transactor.store import Store, recover
from neo.transactor.tlog import SEGMENT, segment_path

GENESIS = first_members([("a", ("host", 1)), ("b", ("host", 2)), ("c", ("host", 3))])
NAME = 77


class Logs:
    def __init__(self, folder: Path) -> None:
        self.tlog, self.mlog = str(folder / "tlog"), str(folder / "mlog")
        os.mkdir(self.tlog)
        Path(self.mlog).touch()
        self.told: list[str] = []

    def open(self, begun: Begun = Begun.FRESH) -> Store:
        return Store(self.tlog, self.mlog, "a", GENESIS, NAME, self.told.append, begun)

    def filled(self, count: int) -> Store:
        store = self.open()
        for tid in range(1, count + 1):
            store.append(decision(tid))
        store.sync()
        return store

    def segment(self, first: int = 1) -> Path:
        return Path(segment_path(self.tlog, first))

    def recover(self) -> None:
        recover(self.tlog, self.mlog, "a", NAME + 1, self.told.append)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def spec(tid: int) -> Spec:
    return Spec(Sid(0, (NAME << 32) + tid), Kind.DATA, b"data of %d" % tid)


def decision(tid: int) -> list[Record]:
    return [Held(spec(tid)), Vote(tid, 0, spec(tid).sid, 0), Entry(tid, spec(tid))]


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def test_what_was_appended_is_there_after_a_restart(logs: Logs) -> None:
    store = logs.filled(2 * SEGMENT + 5)
    vote = Vote(206, 3, spec(206).sid, 2)
    store.append([Held(spec(206)), vote, Known(1, 99)])
    store.close()
    again = logs.open()
    assert again.tlog.end.tid == 206
    assert again.read(1, 300, 1 << 20) == [spec(tid) for tid in range(1, 206)]
    assert again.read(99, 3, 1 << 20) == [spec(99), spec(100), spec(101)]
    assert len(again.read(1, 300, 1)) == 1
    durable = again.durable
    assert durable.votes == {206: vote}
    assert durable.held == {spec(206).sid: spec(206)}
    assert durable.known == {1: 99}
    assert (durable.log, durable.begun, durable.number) == (NAME, Begun.FRESH, (NAME << 32) + 206)
    assert logs.told == []


def test_members_are_those_of_the_log(logs: Logs) -> None:
    store = logs.filled(3)
    more = GENESIS.added("d", ("host", 4))
    store.append([Entry(4, Spec(Sid(1, 1), Kind.MEMBERS, more.encode()))])
    for tid in range(5, 2 * SEGMENT):
        store.append(decision(tid))
    store.close()
    end = logs.open().durable.end
    assert end.members == more
    assert end.genesis == GENESIS
    assert end.former == (0, 1, 2, 3)


def test_a_crash_may_cut_the_log_at_every_byte(logs: Logs) -> None:
    """Specification 20.26."""
    logs.filled(5).close()
    path = logs.segment()
    whole, journal = path.read_bytes(), Path(logs.mlog).read_bytes()
    ends = [whole.index(b"data of %d" % tid) + len(b"data of 1" + END) for tid in range(1, 6)]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        Path(logs.mlog).write_bytes(journal)
        logs.told.clear()
        store = logs.open()
        assert store.tlog.end.tid - 1 == sum(end <= cut for end in ends)
        for tid in range(store.tlog.end.tid, 6):
            store.append(decision(tid))
        store.close()
        assert path.read_bytes() == whole
        if cut > ends[0] and cut not in ends:
            assert "cut off by a crash in transaction" in logs.told[0]


def test_a_crash_may_cut_the_journal_at_every_byte(logs: Logs) -> None:
    store = logs.open()
    begun = os.path.getsize(logs.mlog)
    votes = [Vote(1, r, None, -1) for r in range(1, 6)]
    ends = []
    for vote in votes:
        store.append([vote])
        ends.append(os.path.getsize(logs.mlog))
    store.close()
    whole = Path(logs.mlog).read_bytes()
    for cut in range(begun, len(whole)):
        Path(logs.mlog).write_bytes(whole[:cut])
        store = logs.open()
        kept = sum(end <= cut for end in ends)
        assert store.durable.votes == ({1: votes[kept - 1]} if kept else {})
        store.close()


def test_a_flipped_bit_is_refused_and_recovery_keeps_what_is_before(logs: Logs) -> None:
    logs.filled(SEGMENT + 20).close()
    path = logs.segment(SEGMENT + 1)
    flip(path, path.stat().st_size // 2)
    with pytest.raises(StoreError, match=r"segment .*101\.seg of the log is damaged.*--recover"):
        logs.open()
    logs.recover()
    store = logs.open()
    assert store.tlog.end.tid == SEGMENT + 1
    assert store.durable.learner and store.durable.begun is Begun.RECOVERED
    assert store.durable.log == NAME + 1
    assert any("000000000101.seg is set aside" in told for told in logs.told)
    assert any("mlog is set aside" in told for told in logs.told)


@pytest.mark.parametrize("data", [b"x", b"x" + bytes(3000)], ids=["short", "zeros"])
@pytest.mark.parametrize("which", ["tlog", "mlog"])
def test_no_flipped_bit_goes_unseen(logs: Logs, which: str, data: bytes) -> None:
    """Specification 20.26."""
    store = logs.filled(5)
    last = Spec(spec(6).sid, Kind.DATA, data)
    store.append([Known(1, 9), Vote(6, 0, last.sid, 0), Held(last), Entry(6, last)])
    store.close()
    path = logs.segment() if which == "tlog" else Path(logs.mlog)
    whole, size = path.read_bytes(), path.stat().st_size
    chance = random.Random(1)
    for _ in range(100):
        flip(path, chance.randrange(size), chance.randrange(8))
        with pytest.raises(StoreError, match=f"{path} .*is damaged|{path} is damaged"):
            logs.open()
        path.write_bytes(whole)
    logs.open().close()
    assert logs.told == []


def test_a_flipped_bit_in_an_old_segment_hides_that_segment_only(logs: Logs) -> None:
    logs.filled(SEGMENT + 1).close()
    flip(logs.segment(1), 2000)
    store = logs.open()
    assert store.read(50, 10, 1000) == []
    assert store.read(SEGMENT + 1, 10, 1000) == [spec(SEGMENT + 1)]
    assert any("damaged" in told for told in logs.told)


@pytest.mark.parametrize("beyond", [0, 5], ids=["between two", "within one"])
@pytest.mark.parametrize("kept", [0, 52, 99])
def test_a_segment_that_is_not_the_last_must_be_full(logs: Logs, kept: int, beyond: int) -> None:
    logs.filled(2 * SEGMENT + 5).close()
    path = logs.segment(SEGMENT + 1)
    data = path.read_bytes()
    cut = data.index(frame(records.encode(decision(SEGMENT + 1 + kept)[2]))) + beyond
    path.write_bytes(data[:cut])
    store = logs.open()
    assert store.read(SEGMENT + 1, 10, 1000) == []
    assert (
        f"101.seg of the log is damaged ({kept} of its 100 transactions are whole)" in logs.told[-1]
    )
    assert "--recover" in logs.told[-1]
    assert store.read(2 * SEGMENT + 1, 10, 1000) == [spec(2 * SEGMENT + n) for n in range(1, 6)]
    store.close()
    logs.recover()
    store = logs.open()
    assert store.tlog.end.tid == SEGMENT + 1
    assert len(store.read(1, SEGMENT, 1 << 20)) == SEGMENT


def test_recovery_keeps_a_last_segment_that_a_crash_cut_off(logs: Logs) -> None:
    logs.filled(SEGMENT + 5).close()
    path = logs.segment(SEGMENT + 1)
    path.write_bytes(path.read_bytes()[:-1])
    logs.recover()
    assert logs.open().tlog.end.tid == SEGMENT + 5


@pytest.mark.parametrize("content", [b"", bytes(300)], ids=["empty", "zeros"])
def test_before_a_segment_that_was_not_begun_the_log_must_be_whole(
    logs: Logs, content: bytes
) -> None:
    logs.filled(SEGMENT + 1).close()
    logs.segment(SEGMENT + 1).write_bytes(content)
    path = logs.segment(1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"0001\.seg of the log is damaged \(99 of its 100"):
        logs.open()


def test_what_is_damaged_under_a_running_node_does_not_confuse_what_it_appends(logs: Logs) -> None:
    store = logs.filled(7 * SEGMENT + 5)
    flip(logs.segment(7 * SEGMENT + 1), 200)
    for first in range(1, 7 * SEGMENT, SEGMENT):
        assert store.read(first, 1, 1) == [spec(first)]
    tid = store.tlog.end.tid
    store.append(decision(tid))
    assert store.read(tid, 5, 1000) == [spec(tid)]
    assert store.read(tid - 5, 9, 1000) == [spec(n) for n in range(tid - 5, tid + 1)]


def test_a_record_of_the_journal_in_a_segment_is_damage(logs: Logs) -> None:
    logs.filled(3).close()
    with open(segment_path(logs.tlog, 1), "ab") as file:
        file.write(frame(records.encode(Known(1, 77))))
    with pytest.raises(StoreError, match="is damaged .it has other transactions."):
        logs.open()


def test_a_missing_segment_is_refused(logs: Logs) -> None:
    """Specification 20.27."""
    logs.filled(3 * SEGMENT).close()
    logs.segment(SEGMENT + 1).unlink()
    with pytest.raises(StoreError, match=r"segment .*101\.seg of the log is missing.*--recover"):
        logs.open()
    logs.recover()
    assert logs.open().tlog.end.tid == SEGMENT + 1


def test_missing_transactions_at_the_end_are_refused(logs: Logs) -> None:
    store = logs.filled(SEGMENT + 10)
    store.mlog.shrink(store.tlog.end.tid)
    store.close()
    logs.segment(SEGMENT + 1).unlink()
    with pytest.raises(StoreError, match="ends at 100, but was on disk up to 110"):
        logs.open()


def test_a_segment_whose_first_write_was_lost_is_begun_again(logs: Logs) -> None:
    logs.filled(SEGMENT).close()
    logs.segment(SEGMENT + 1).write_bytes(b"")
    store = logs.open()
    assert store.tlog.end.tid == SEGMENT + 1
    store.append(decision(SEGMENT + 1))
    store.close()
    assert logs.open().tlog.end.tid == SEGMENT + 2


def test_missing_logs_are_not_taken_for_new_ones(logs: Logs) -> None:
    os.unlink(logs.mlog)
    with pytest.raises(StoreError, match="does not exist: create an empty file if the node is new"):
        logs.open()
    logs.recover()
    assert logs.open().durable.learner
    os.rename(logs.tlog, logs.tlog + ".gone")
    with pytest.raises(StoreError, match="is not a folder"):
        logs.open()
    logs.recover()
    assert logs.open().tlog.end.tid == 1


def test_the_journal_of_another_node_is_refused(logs: Logs) -> None:
    logs.open().close()
    with pytest.raises(StoreError, match="is that of node a, not b"):
        Store(logs.tlog, logs.mlog, "b", GENESIS, 1, logs.told.append)


def test_a_strange_file_in_the_log_is_refused(logs: Logs) -> None:
    Path(logs.tlog, "README").touch()
    with pytest.raises(StoreError, match="not part of a transaction log: move it elsewhere"):
        logs.open()


def test_a_journal_shrinks_by_itself_and_loses_nothing(logs: Logs) -> None:
    """Specification 20.28."""
    store = logs.open(Begun.RECOVERED)
    store.append([Voter(1), Known(2, 5)])
    big = b"x" * 20_000
    for tid in range(1, 121):
        sid = Sid(0, (NAME << 32) + tid)
        store.append([Held(Spec(sid, 0, big)), Vote(tid, 0, sid, 0), Entry(tid, Spec(sid, 0, big))])
    last = Sid(0, (NAME << 32) + 121)
    store.append([Held(Spec(last, 0, big)), Vote(121, 1, last, 1)])
    assert os.path.getsize(logs.mlog) < 1_200_000 < 120 * len(big)
    store.close()
    durable = logs.open().durable
    assert not durable.learner and durable.known == {2: 5}
    assert durable.votes == {121: Vote(121, 1, last, 1)} and list(durable.held) == [last]
    assert durable.number == (NAME << 32) + 121
    assert not os.path.exists(logs.mlog + ".new")


@pytest.mark.parametrize("which", ["tlog", "mlog"])
def test_a_full_disk_stops_the_node_with_a_reason(
    logs: Logs, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = logs.filled(3)
    write = os.write

    def full(fd: int, data: memoryview) -> int:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if (path == logs.mlog) == (which == "mlog"):
            write(fd, data[: len(data) // 2])  # what fits
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="No space left on device; free some space and start"):
        store.append(decision(4))
    monkeypatch.undo()
    store.close()
    again = logs.open()
    assert again.tlog.end.tid == (4 if which == "tlog" else 5)
    assert again.durable.votes == {} or which == "tlog"


def test_a_failed_sync_is_a_store_error(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    store = logs.filled(1)
    store.append([Vote(2, 1, None, -1)])

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StoreError, match="cannot write to .*mlog: Input/output error"):
        store.sync()


def test_what_a_killed_process_left_unsynced_is_synced_before_it_is_believed(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = logs.filled(1)
    store.append([*decision(2), Vote(3, 1, None, -1)])
    store.close()  # killed: the data is in the page cache, perhaps not on the disk
    synced: set[str] = set()

    def remember(sync: Callable[[int], None]) -> Callable[[int], None]:
        def syncs(fd: int) -> None:
            synced.add(os.readlink(f"/proc/self/fd/{fd}"))
            sync(fd)

        return syncs

    monkeypatch.setattr(os, "fdatasync", remember(os.fdatasync))
    monkeypatch.setattr(os, "fsync", remember(os.fsync))
    again = logs.open()
    assert again.tlog.end.tid == 3 and 3 in again.durable.votes
    assert synced >= {logs.mlog, str(logs.segment()), logs.tlog, os.path.dirname(logs.mlog)}


def test_a_file_that_cannot_be_opened_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        LogFile(str(tmp_path / "no" / "file"), 0)
