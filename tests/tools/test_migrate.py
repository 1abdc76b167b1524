"""neomigrate between FileStorages: whole histories, interruptions, differences."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import transaction
import ZEO
from persistent.mapping import PersistentMapping
from ZODB import DB
from ZODB.DemoStorage import DemoStorage
from ZODB.FileStorage import FileStorage
from ZODB.interfaces import IStorageUndoable
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import POSKeyError

from neo.migrate import MigrateError, compare, copy_from, main, starting_point
from neo.migrate.comparing import Difference
from neo.protocol.ids import ZERO_TID
from neo.protocol.words import counted

Capture = pytest.CaptureFixture[str]
CHANGES = 12


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Make a database with objects, metadata, undone changes, an undone undo and an undone creation."""
    path = tmp_path / "source.fs"
    with closing(DB(FileStorage(str(path)))) as db:
        for number in range(CHANGES):
            with db.transaction(f"change {number}") as connection:
                root = connection.root()
                root[number] = PersistentMapping(number=number)
                root[0]["text"] = "x" * number
                current = connection.transaction_manager.get()
                current.setUser("ünï")
                current.setExtendedInfo("number", number)
        for _ in range(3):  # the first undoes a creation; the others undo an undo
            last = db.undoInfo(0, 1)[0]["id"]
            db.undo(last, transaction.get())
            transaction.commit()
    return path


def storage(path: Path) -> Any:
    return closing(FileStorage(str(path)))


def differences(source: Path, destination: Path) -> list[Difference]:
    with storage(source) as one, storage(destination) as two:
        return [difference for _, found in compare(one, two) for difference in found]


def tids(path: Path) -> list[bytes]:
    with storage(path) as opened:
        return [record.tid for record in opened.iterator()]


def loaded(storage: Any, oid: bytes, tid: bytes) -> Any:
    """Return the revision of an object before a transaction."""
    try:
        return storage.loadBefore(oid, tid)
    except POSKeyError:
        return "its creation was undone"


def truncated(source: Path, destination: Path, count: int) -> None:
    """Copy the first ``count`` transactions of a storage."""
    with storage(source) as one, storage(destination) as two:
        with closing(copy_from(ZERO_TID, one, two)) as steps:
            for _ in range(count):
                next(steps)


def test_copy_has_the_same_history(source: Path, tmp_path: Path, capsys: Capture) -> None:
    destination = tmp_path / "copy.fs"
    assert main([str(source), str(destination), "--verify"]) == 0
    assert differences(source, destination) == []
    assert len(tids(destination)) == CHANGES + 4
    out = capsys.readouterr().out
    assert f"Copied {CHANGES + 4} transactions" in out
    assert f"Verified {CHANGES + 4} transactions: source and destination are equal." in out


def test_copy_answers_what_the_source_answers(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "copy.fs"
    assert main([str(source), str(destination)]) == 0
    with storage(source) as one, storage(destination) as two:
        for record in one.iterator():
            for row in record:
                assert two.history(row.oid, 100) == one.history(row.oid, 100)
                # Backpointers are kept: data that an undo restored is not stored twice.
                assert loaded(one, row.oid, row.tid) == loaded(two, row.oid, row.tid)
        assert two.undoLog(0, 50) == one.undoLog(0, 50)
    assert destination.stat().st_size == source.stat().st_size


def test_copy_can_be_undone_further(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "copy.fs"
    main([str(source), str(destination)])
    with closing(DB(FileStorage(str(destination)))) as db:
        assert IStorageUndoable.providedBy(db.storage)
        db.undo(db.undoInfo(0, 1)[0]["id"], transaction.get())
        transaction.commit()
        with db.transaction() as connection:
            assert sorted(connection.root()) == list(range(CHANGES))


@pytest.mark.parametrize("count", [1, 5, CHANGES + 3])
def test_interrupted_copy_goes_on(
    source: Path, tmp_path: Path, capsys: Capture, count: int
) -> None:
    destination = tmp_path / "copy.fs"
    truncated(source, destination, count)
    assert main([str(source), str(destination), "--verify"]) == 0
    assert f"Copied {counted(CHANGES + 4 - count, 'transaction')}" in capsys.readouterr().out
    assert differences(source, destination) == []


def test_complete_copy_has_nothing_to_do(source: Path, tmp_path: Path, capsys: Capture) -> None:
    destination = tmp_path / "copy.fs"
    main([str(source), str(destination)])
    before = destination.read_bytes()
    assert main([str(source), str(destination)]) == 0
    assert "every transaction of the source already" in capsys.readouterr().out
    assert destination.read_bytes() == before


def test_transactions_added_since_are_copied(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "copy.fs"
    main([str(source), str(destination)])
    with closing(DB(FileStorage(str(source)))) as db, db.transaction() as connection:
        connection.root()["new"] = 1
    assert differences(source, destination) != []
    assert main([str(source), str(destination)]) == 0
    assert differences(source, destination) == []


def test_interruption_leaves_whole_transactions_and_says_how_to_go_on(
    source: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "copy.fs"
    original = FileStorage.restore
    calls = 0

    def interrupted(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(FileStorage, "restore", interrupted)
    assert main([str(source), str(destination)]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    kept = tids(destination)
    assert 0 < len(kept) < CHANGES
    assert kept == tids(source)[: len(kept)]
    monkeypatch.undo()
    assert main([str(source), str(destination), "--verify"]) == 0


def test_destination_of_another_history_is_refused(
    source: Path, tmp_path: Path, capsys: Capture
) -> None:
    destination = tmp_path / "other.fs"
    with closing(DB(FileStorage(str(destination)))) as db, db.transaction() as connection:
        connection.root()["mine"] = 1
    before = destination.read_bytes()
    assert main([str(source), str(destination)]) == 1
    assert "which the source lacks" in capsys.readouterr().err
    assert destination.read_bytes() == before


def test_boundary_transaction_with_the_same_tid_but_other_data_is_refused(
    source: Path, tmp_path: Path, capsys: Capture
) -> None:
    destination = tmp_path / "copy.fs"
    change_last(source, destination, 6, data=lambda data: data + b".")
    assert main([str(source), str(destination)]) == 1
    err = capsys.readouterr().err
    assert "the destination holds another database: transaction 0x" in err
    assert len(tids(destination)) == 6


def change_last(
    source: Path, destination: Path, count: int, **change: Callable[[Any], Any]
) -> bytes:
    """Copy ``count`` transactions, the last of them changed. Return its tid."""
    truncated(source, destination, count - 1)
    with storage(source) as one, storage(destination) as two:
        iterator = one.iterator()
        record = next(islice(iterator, count - 1, None))
        rows = list(record)
        iterator.close()
        if "user" in change:
            record.user = change["user"](record.user)
        if "extension" in change:
            record.extension_bytes = pickle.dumps(change["extension"](record.extension), 0)
        two.tpc_begin(record, record.tid, record.status)
        for row in rows[change["rows"](0) if "rows" in change else 0 :]:
            data = change["data"](row.data) if "data" in change else row.data
            two.restore(row.oid, row.tid, data, "", None, record)
        two.tpc_vote(record)
        two.tpc_finish(record)
        tid: bytes = record.tid
        return tid


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"user": lambda user: b"eve"}, "user is b'/ \\xc3\\xbcn\\xc3\\xaf', not b'eve'"),
        ({"extension": lambda value: {"number": -1}}, "extension is {'number': 4}"),
        ({"data": lambda data: data + b"."}, "bytes with SHA-1"),
        ({"data": lambda data: None}, "not no data (its creation was undone)"),
        ({"rows": lambda first: 1}, "is missing in the destination"),
    ],
)
def test_verify_finds_what_differs(
    source: Path, tmp_path: Path, capsys: Capture, change: Any, text: str
) -> None:
    destination = tmp_path / "copy.fs"
    tid = change_last(source, destination, 6, **change)
    assert main([str(source), str(destination), "--verify", "--dry-run"]) == 1
    err = capsys.readouterr().err
    assert f"different: transaction 0x{tid.hex()}: " in err
    assert text in err


def test_verify_accepts_another_pickle_of_the_same_extension(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "copy.fs"
    change_last(source, destination, 6, extension=lambda value: dict(value))
    found = [d for d in differences(source, destination) if "extension" in d.what]
    assert found == []


def test_verify_names_missing_and_surplus_transactions_and_stops_after_some(
    source: Path, tmp_path: Path, capsys: Capture
) -> None:
    destination = tmp_path / "copy.fs"
    truncated(source, destination, 2)
    assert main([str(source), str(destination), "--verify", "--dry-run"]) == 1
    err = capsys.readouterr().err
    assert err.count("different: ") == 10
    assert err.count("is missing in the destination") == 10
    assert main([str(destination), str(source), "--verify", "--dry-run"]) == 1
    assert "is in the destination only" in capsys.readouterr().err


def test_dry_run_writes_nothing_and_counts(source: Path, tmp_path: Path, capsys: Capture) -> None:
    destination = tmp_path / "copy.fs"
    assert main([str(source), str(destination), "--dry-run"]) == 0
    assert f"Would copy {CHANGES + 4} transactions" in capsys.readouterr().out
    assert not destination.exists()
    truncated(source, destination, 5)
    before = destination.read_bytes()
    assert main([str(source), str(destination), "--dry-run"]) == 0
    assert f"Would copy {CHANGES - 1} transactions" in capsys.readouterr().out
    assert destination.read_bytes() == before


def test_empty_source_is_copied(tmp_path: Path, capsys: Capture) -> None:
    FileStorage(str(tmp_path / "empty.fs")).close()
    arguments = [str(tmp_path / "empty.fs"), str(tmp_path / "copy.fs"), "--verify"]
    assert main(arguments) == 0
    assert "Copied 0 transactions" in capsys.readouterr().out


def test_packed_source_is_copied(source: Path, tmp_path: Path) -> None:
    with closing(DB(FileStorage(str(source)))) as db:
        db.pack()
    assert main([str(source), str(tmp_path / "copy.fs"), "--verify"]) == 0


def test_sections_of_a_configuration_file(source: Path, tmp_path: Path) -> None:
    config = tmp_path / "storages.conf"
    config.write_text(
        f"<filestorage Old>\n path {source}\n</filestorage>\n"
        f"<zodb new>\n <filestorage>\n  path {tmp_path}/new.fs\n </filestorage>\n</zodb>\n"
    )
    assert main(["old", "new", "--config", str(config), "--verify"]) == 0
    assert differences(source, tmp_path / "new.fs") == []


def test_uri_of_an_installed_package(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "by-uri.fs"
    assert main([str(source), f"file://{destination}", "--verify"]) == 0
    assert differences(source, destination) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["{tmp}/none.fs", "{tmp}/copy.fs"], "there is no such file"),
        (["{source}", "{tmp}/copy"], "a new file must be called *.fs"),
        (["{source}", "{tmp}/away/copy.fs"], "its folder does not exist"),
        (["{source}", "nosuch://x"], "no installed package opens nosuch: addresses"),
        (["{tmp}/garbage", "{tmp}/copy.fs"], "is not a FileStorage: it begins with b'<thi'"),
        (["{tmp}/nothing", "{tmp}/copy.fs"], "is empty"),
        (["{tmp}", "{tmp}/copy.fs"], "it is no file"),
        (["{source}", "{tmp}/garbage"], "is not a FileStorage"),
        (["{source}", "{tmp}/locked.fs"], "it is locked, another process has it open"),
        (["{source}", "file://{tmp}/copy.fs?quotta=1"], "has unknown options: quotta"),
        (["neo://a@127.0.0.1:1?wait=3&database_name=x", "{tmp}/copy.fs"], "unknown options: wait"),
        (["neo://127.0.0.1:1", "{tmp}/copy.fs"], "is wrong: "),
        (["{source}", "{tmp}/copy.fs", "--config", "{tmp}/none.conf"], "configuration file"),
        (["{source}", "{tmp}/copy.fs", "--config", "{tmp}/garbage"], "configuration file"),
    ],
)
def test_wrong_argument_is_named_with_what_to_write(
    source: Path, tmp_path: Path, capsys: Capture, arguments: list[str], text: str
) -> None:
    (tmp_path / "garbage").write_text("<this is\nnothing")
    (tmp_path / "nothing").touch()
    words = [word.format(tmp=tmp_path, source=source) for word in arguments]
    with storage(tmp_path / "locked.fs"):
        assert main(words) == 1
    err = capsys.readouterr().err
    assert text in err
    assert err.startswith("neomigrate: ")
    assert not (tmp_path / "copy.fs").exists()


def test_a_database_in_memory_is_copied(tmp_path: Path) -> None:
    """MappingStorage lists its transactions, with extensions that are not bytes."""
    memory = MappingStorage()
    db = DB(memory)
    with db.transaction("a change") as connection:
        connection.root()["x"] = PersistentMapping(number=1)
        connection.transaction_manager.get().setExtendedInfo("number", 1)
    with storage(tmp_path / "copy.fs") as copy:
        start = starting_point(memory, copy)
        assert start is not None
        assert len(list(copy_from(start, memory, copy))) == 2
        assert [found for _, found in compare(memory, copy)] == [[], []]
        assert copy.undoLog()[0]["number"] == 1
    db.close()


def test_zeo_is_copied_from_and_to(source: Path, tmp_path: Path) -> None:
    served = tmp_path / "served.fs"
    (host, port), stop = ZEO.server(str(source))
    try:
        assert main([f"zeo://{host}:{port}", str(tmp_path / "copy.fs"), "--verify"]) == 0
    finally:
        stop()
    (host, port), stop = ZEO.server(str(served))
    try:
        assert main([str(source), f"zeo://{host}:{port}", "--verify"]) == 0
    finally:
        stop()
    assert differences(source, tmp_path / "copy.fs") == []
    assert differences(source, served) == []


def test_destination_that_cannot_restore_is_refused() -> None:
    with pytest.raises(MigrateError, match="cannot be written with the ids of the source"):
        starting_point(MappingStorage(), DemoStorage())


def test_progress_and_reports_keep_to_their_streams(
    source: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert main([str(source), str(tmp_path / "copy.fs")]) == 0
    out, err = capsys.readouterr()
    assert "copying" in err
    assert out.count("\n") == 1
    assert main([str(source), str(tmp_path / "quiet.fs"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
