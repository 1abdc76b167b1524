"""A cache that survives a restart, and what is dropped of it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from neo.client.errors import ConfigurationError
from neo.client.read.invalidations import Invalidations
from neo.client.settings import make_settings
from neo.client.warm import keeper, validation
from neo.client.warm.slots import SLOTS, Slot, take_slot
from neo.client.warm.snapshot import write
from neo.protocol.ids import p64
from neo.protocol.packets import AnswerLastTransaction, AskLastTransaction, AskTIDsFrom, Message
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.unit.client.scripted import NAME
from tests.unit.client.warm.history import History, history


@pytest.fixture
def site() -> Iterator[History]:
    with history() as site:
        yield site


def loads(site: History, folder: Path, expected: dict[int, bytes]) -> int:
    """Open a client again and load objects. Return how many the cluster was asked for, without those of
    the sample."""
    with site.client(folder) as storage:
        before = site.loads
        assert {oid: storage.load(p64(oid))[0] for oid in expected} == expected
        return site.loads - before


def test_nothing_is_loaded_again_after_a_restart(site: History, tmp_path: Path) -> None:
    """Specification 16.47."""
    site.kept(tmp_path)
    assert loads(site, tmp_path, {1: b"one", 2: b"two", 3: b"more"}) == 0


def test_old_revisions_survive_until_a_pack(site: History, tmp_path: Path) -> None:
    """Specification 16.47, 16.50."""
    with site.client(tmp_path) as storage:
        assert storage.loadBefore(p64(3), p64(150)) == (b"three", p64(100), p64(200))
    with site.client(tmp_path) as storage:
        before = site.loads
        assert storage.loadBefore(p64(3), p64(150)) == (b"three", p64(100), p64(200))
        assert site.loads == before
    site.packed = 200
    with site.client(tmp_path) as storage:
        assert storage._invalidations.cache.load_before(p64(3), p64(150)) is None
    site.packed = 0
    site.kept(tmp_path)
    with site.client(tmp_path) as storage:
        storage.loadBefore(p64(3), p64(150))
    site.cluster.features = []  # a master that tells no pack
    with site.client(tmp_path) as storage:
        assert storage._invalidations.cache.load_before(p64(3), p64(150)) is None
        assert storage._invalidations.cache.load_before(p64(3), p64(201)) is not None


def test_what_was_changed_meanwhile_is_dropped(site: History, tmp_path: Path) -> None:
    """Specification 16.48."""
    site.kept(tmp_path)
    site.commit(300, o1=b"new")
    site.commit(400, o2=b"newer")
    assert loads(site, tmp_path, {1: b"new", 2: b"newer", 3: b"more"}) == 2


def test_what_is_changed_during_the_comparison_is_dropped(
    site: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 16.48."""
    site.kept(tmp_path)
    answers = site.storage_node.answers
    original, invalidate = answers[AskTIDsFrom], Invalidations.invalidate
    told = threading.Event()

    def invalidated(self: Invalidations, tid: bytes, oids: Sequence[bytes], of: object) -> None:
        invalidate(self, tid, oids, of)
        told.set()

    def tids(m: AskTIDsFrom) -> Message | None:
        found = original(m)
        site.commit(300, o1=b"new")
        site.tell(300)
        assert told.wait(PATIENCE_SECONDS)
        return found

    monkeypatch.setattr(Invalidations, "invalidate", invalidated)

    answers[AskTIDsFrom] = tids
    with site.client(tmp_path) as storage:
        assert storage._invalidations.cache.load_before(p64(2), p64(301)) is not None
        assert storage.load(p64(1)) == (b"new", p64(300))


def test_a_truncated_database_is_noticed(
    site: History, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 16.48."""
    site.kept(tmp_path)
    site.truncate(100)
    assert loads(site, tmp_path, {3: b"three"}) == 1
    assert "the database was truncated, or is another one" in caplog.text


def test_a_database_that_was_truncated_and_went_on_is_noticed(
    site: History, tmp_path: Path
) -> None:
    """Specification 16.48."""
    site.kept(tmp_path)
    site.truncate(100)
    site.commit(300, o2=b"else")
    assert loads(site, tmp_path, {1: b"one", 2: b"else", 3: b"three"}) == 3


def test_another_database_of_the_same_name_is_noticed(site: History, tmp_path: Path) -> None:
    """Specification 16.48: the last transaction has the same tid, and changed other objects."""
    site.kept(tmp_path)
    # The object of the sample is the same.
    site.transactions = {100: {1: b"one", 2: b"b", 3: b"c"}, 200: {2: b"d"}}
    assert loads(site, tmp_path, {1: b"one", 2: b"d", 3: b"c"}) == 3


def test_changed_data_under_the_old_tids_is_noticed(
    site: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 16.48: an import of converted records. The sample has all records here."""
    monkeypatch.setattr(validation, "SAMPLE_EACH", 1)
    site.kept(tmp_path)
    site.transactions[100][2] = b"converted"
    assert loads(site, tmp_path, {1: b"one", 2: b"converted", 3: b"more"}) == 3


def test_a_pack_and_later_commits_drop_everything(site: History, tmp_path: Path) -> None:
    """Specification 16.50: some implementations forget metadata of packed transactions."""
    site.kept(tmp_path)
    site.packed = 200
    assert loads(site, tmp_path, {1: b"one"}) == 0
    site.commit(300, o2=b"new")
    assert loads(site, tmp_path, {1: b"one", 2: b"new", 3: b"more"}) == 3


def test_too_many_transactions_drop_everything(
    site: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 16.48."""
    monkeypatch.setattr(validation, "CHANGES_MAX", 2)
    site.kept(tmp_path)
    site.commit(300, o1=b"a")
    site.commit(400, o1=b"b")
    assert loads(site, tmp_path, {1: b"b", 2: b"two"}) == 1
    for tid in (500, 600, 700):
        site.commit(tid, o1=b"c")
    assert loads(site, tmp_path, {1: b"c", 2: b"two"}) == 2


def test_a_second_process_begins_with_the_cache_of_the_first(site: History, tmp_path: Path) -> None:
    """Specification 16.51."""
    site.kept(tmp_path)
    with site.client(tmp_path):
        assert loads(site, tmp_path, {1: b"one", 2: b"two", 3: b"more"}) == 0


def test_without_a_free_slot_a_process_has_its_memory_alone(
    site: History, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 16.51."""
    site.kept(tmp_path)
    taken = [take_slot(str(tmp_path), NAME) for _ in range(SLOTS)]
    assert loads(site, tmp_path, {1: b"one"}) == 1
    assert caplog.text.count("other processes use all its slots") == 1
    assert all(taken)


def test_a_folder_that_cannot_be_used_stops_nothing(
    site: History, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 16.49."""
    (tmp_path / "file").touch()
    assert loads(site, tmp_path / "file", {1: b"one"}) == 1
    assert "cannot be used, so the cache is not kept" in caplog.text


def test_a_full_disk_is_reported_once_and_the_older_file_stays_right(
    site: History, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 16.49."""
    site.kept(tmp_path)

    def full(self: Slot, write: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Slot, "replace", full)
        with site.client(tmp_path) as storage:
            for tid in (300, 400):
                site.commit(tid, o1=b"new")
                site.tell(tid)
                wait_until(lambda tid=tid: storage.lastTransaction() == p64(tid), "it")
                storage._session.keeper.save()
    assert caplog.text.count("No space left on device") == 1
    assert loads(site, tmp_path, {1: b"new", 2: b"two", 3: b"more"}) == 1


def test_the_cache_is_saved_while_the_client_runs(
    site: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 16.49: a process that is killed leaves the last one."""
    monkeypatch.setattr(keeper, "SAVE_SECONDS", 0.01)
    with site.client(tmp_path) as storage:
        storage.load(p64(1))
        wait_until(lambda: list(tmp_path.glob("*.cache")), "the cache is saved")
        saved = next(tmp_path.glob("*.cache")).read_bytes()
        assert b"one" in saved


def test_a_file_of_a_history_that_ended_while_it_was_written_is_not_kept(
    site: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 16.49."""

    def emptied(*arguments: Any) -> None:
        storage._invalidations.cache.clear()
        write(*arguments)

    monkeypatch.setattr(keeper, "write", emptied)
    with site.client(tmp_path) as storage:
        storage.load(p64(1))
        storage._session.keeper.save()
    assert not list(tmp_path.glob("*.cache"))


def test_after_another_connection_only_a_known_transaction_is_a_mark(
    site: History, tmp_path: Path
) -> None:
    """Specification 16.49: a client that joins again does not know what the last one changed."""
    with site.client(tmp_path) as storage:
        site.commit(300, o1=b"new")
        site.cluster.master.answers[AskLastTransaction] = lambda m: AnswerLastTransaction(p64(300))
        site.cluster.master.peer.close()
        storage.sync()
        assert storage.load(p64(1)) == (b"new", p64(300))
        assert storage._invalidations.last is None
        site.commit(400, o2=b"newer")
        site.tell(400)
        wait_until(lambda: storage.lastTransaction() == p64(400), "the invalidation")
        assert storage._invalidations.last == (p64(400), [p64(2)])


def test_what_needs_no_save_is_not_written(site: History, tmp_path: Path) -> None:
    """Specification 16.47."""
    site.kept(tmp_path)
    (path,) = tmp_path.glob("*.cache")
    before = path.stat().st_ino
    assert loads(site, tmp_path, {1: b"one"}) == 0
    assert path.stat().st_ino == before
    site.commit(300, o3=b"new")
    with site.client(tmp_path):
        pass
    assert path.stat().st_ino != before
    site.commit(400, o2=b"newer")
    assert loads(site, tmp_path, {1: b"one", 2: b"newer", 3: b"new"}) == 2


def test_the_child_of_a_fork_has_its_memory_alone(site: History, tmp_path: Path) -> None:
    """Specification 16.51."""
    with site.client(tmp_path) as storage:
        storage.load(p64(1))
        pid = os.fork()
        if not pid:
            try:
                assert not len(storage._invalidations.cache)
                storage.close()
                assert not list(tmp_path.glob("*.cache"))
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert loads(site, tmp_path, {1: b"one"}) == 0


def test_invalidations_are_noted_no_longer_than_for_the_comparison(
    site: History, tmp_path: Path
) -> None:
    site.kept(tmp_path)
    for tid in (200, 100):  # a file that is used, then one that is not
        site.truncate(tid)
        with site.client(tmp_path) as storage:
            assert storage._invalidations.cache._since is None


def test_an_unavailable_partition_does_not_keep_a_client_from_opening(
    site: History, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 16.48."""
    site.kept(tmp_path)
    site.storage_node.server.close()
    with site.client(tmp_path, wait_timeout=0.2):
        assert "the kept cache is not used" in caplog.text


def test_the_folder_needs_a_cache() -> None:
    with pytest.raises(ConfigurationError, match="cache_dir"):
        make_settings("127.0.0.1:1", "site", 1.0, None, (None, None, None), 1, 0, cache_dir="/x")
    with pytest.raises(ConfigurationError, match="cache_dir"):
        make_settings("127.0.0.1:1", "site", 1.0, None, (None, None, None), 1, 1000, cache_dir="")


@pytest.fixture(autouse=True)
def _levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "neo.client")
