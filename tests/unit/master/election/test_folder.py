"""The log of a master on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from neo.master.election.folder import LogFolder
from neo.master.election.log import LogFailure, genesis_of
from neo.transactor.durable import Begun
from neo.transactor.messages import Entry, Kind, Sid, Spec
from neo.transactor.store import Store

GENESIS = genesis_of([("127.0.0.1", 1), ("127.0.0.1", 2)])


def open_folder(path: Path) -> LogFolder:
    def from_thread(callback: object, *args: object) -> None:
        assert callable(callback)
        callback(*args)

    return LogFolder(str(path), "127.0.0.1:1", GENESIS, from_thread, lambda text: None)


def test_a_new_folder_keeps_the_name_of_its_journal(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "log")
    assert folder.durable is None and folder.journal
    folder.close()
    again = open_folder(tmp_path / "log")
    assert again.durable is None and again.journal == folder.journal
    again.close()


def test_a_log_that_has_begun_is_found_again(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.begin(Begun.FRESH, GENESIS, {1: 77})
    folder.append([Entry(1, Spec(Sid(0, 1), Kind.DATA, b"x"))])
    done: list[bool] = []
    folder.sync(lambda: done.append(True), lambda failure: pytest.fail(str(failure)))
    folder.close()
    assert done == [True]
    again = open_folder(tmp_path)
    assert again.journal == folder.journal
    assert again.durable is not None
    assert (again.durable.known, again.durable.end.tid) == ({1: 77}, 2)
    assert [spec.data for spec in again.read(1, 9, 999)] == [b"x"]
    again.close()


def test_an_unexpected_error_of_a_sync_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: Store) -> None:
        raise MemoryError

    failures: list[str] = []
    folder = open_folder(tmp_path)
    folder.begin(Begun.FRESH, GENESIS, {})
    monkeypatch.setattr(Store, "sync", fail)
    folder.sync(
        lambda: pytest.fail("it is not durable"), lambda failure: failures.append(str(failure))
    )
    folder.close()
    assert failures == ["the log of the masters cannot be synced: MemoryError()"]


def test_a_node_that_joins_keeps_the_first_members_that_it_learned(tmp_path: Path) -> None:
    learned = genesis_of([("127.0.0.1", 2), ("127.0.0.1", 3)])
    folder = open_folder(tmp_path)
    folder.begin(Begun.RECOVERED, GENESIS, {})
    folder.begin_with(learned)
    folder.append([Entry(1, Spec(Sid(0, 1), Kind.DATA, b"x"))])
    folder.close()
    again = open_folder(tmp_path)
    assert again.durable is not None and again.durable.end.genesis == learned
    again.close()


def test_two_masters_cannot_use_one_folder(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with pytest.raises(LogFailure, match="is in use: another process runs with these logs"):
        open_folder(tmp_path)
    folder.close()


def test_a_log_without_its_journal_is_refused(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.begin(Begun.FRESH, GENESIS, {})
    folder.append([Entry(1, Spec(Sid(0, 1), Kind.DATA, b"x"))])
    folder.close()
    (tmp_path / "mlog").unlink()
    with pytest.raises(LogFailure, match="has lost its file 'mlog': move the folder elsewhere"):
        open_folder(tmp_path)


def test_a_damaged_log_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.begin(Begun.FRESH, GENESIS, {})
    folder.close()
    data = bytearray((tmp_path / "mlog").read_bytes())
    data[10] ^= 1
    (tmp_path / "mlog").write_bytes(bytes(data) * 2)
    with pytest.raises(LogFailure, match=r"damaged.*; move .* elsewhere, and this master learns"):
        open_folder(tmp_path)


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogFailure, match="set 'election_log' to a folder"):
        open_folder(tmp_path / "file" / "log")
