"""A Data.fs of the visitor: copied, counted, never imported."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from persistent import Persistent
from ZODB import DB
from ZODB.blob import Blob
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage

from examples.demo import datafs, scenes
from examples.demo.show import Show

APPLICATION = "an_application_that_is_not_installed"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with three pages of an application, which is gone afterwards."""
    module = ModuleType(APPLICATION)
    page = type("Page", (Persistent,), {"__module__": APPLICATION})
    module.Page = page  # type: ignore[attr-defined]
    path = tmp_path / "theirs.fs"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, APPLICATION, module)
        with closing(DB(FileStorage(str(path)))) as db:
            for number in range(3):
                with db.transaction(f"page {number}") as connection:
                    connection.transaction_manager.get().user = "ada"
                    connection.root()[number] = it = page()
                    it.text = "x" * 1000 * (number + 1)
    return path


@pytest.fixture
def source(path: Path) -> Iterator[Any]:
    with closing(FileStorage(str(path), read_only=True)) as storage:
        yield storage


def test_objects_are_counted_by_class_without_importing_it(source: Any) -> None:
    found = datafs.inventory(source, 5)
    assert [(name, number) for name, number, _ in found.classes] == [
        (f"{APPLICATION}.Page", 3),
        ("persistent.mapping.PersistentMapping", 1),
    ]
    assert found.objects == 4
    assert found.size == sum(size for _, _, size in found.classes)
    assert APPLICATION not in sys.modules


def test_only_the_biggest_objects_are_kept_the_biggest_first(source: Any) -> None:
    biggest = datafs.inventory(source, 2).biggest
    assert [size // 1000 for size, _, _ in biggest] == [3, 2]


def test_transactions_are_counted_by_day_and_user(source: Any) -> None:
    past = datafs.activity(source, 5)
    assert past.transactions == 4  # three pages, and the root
    assert sum(number for _, number in past.days) == 4
    assert past.users == [("ada", 3), ("(no user)", 1)]


@pytest.mark.parametrize("data", [b"", b"\x93garbage", b"\x80\x03"])
def test_a_record_that_cannot_be_read_is_counted_as_such(data: bytes) -> None:
    assert datafs.class_of(data) == "(unreadable)"


def test_a_copy_has_the_same_transactions_and_reports_each(source: Any, tmp_path: Path) -> None:
    out = io.StringIO()
    with closing(FileStorage(str(tmp_path / "copy.fs"))) as copy:
        scenes.copy_datafs(Show(out), copy, tmp_path / "theirs.fs", source)
        ours = [(record.tid, record.description) for record in copy.iterator()]
    assert ours == [(record.tid, record.description) for record in source.iterator()]
    assert "4 of 4 transactions" in out.getvalue()


def test_blobs_are_copied_without_their_contents_which_is_said(tmp_path: Path) -> None:
    with (
        closing(FileStorage(str(tmp_path / "f.fs"), blob_dir=str(tmp_path / "blobs"))) as storage,
        closing(DB(storage)) as db,
        db.transaction() as connection,
    ):
        connection.root()["page"] = Blob(b"content")
    out = io.StringIO()
    with (
        closing(FileStorage(str(tmp_path / "f.fs"), read_only=True)) as source,
        closing(FileStorage(str(tmp_path / "copy.fs"))) as copy,
    ):
        scenes.copy_datafs(Show(out), copy, tmp_path / "f.fs", source)
        assert datafs.has_copy(copy, source)
    assert "the contents of 1 blob were left out" in out.getvalue()


def test_a_second_copy_leaves_the_first_alone(source: Any, tmp_path: Path) -> None:
    out = io.StringIO()
    with closing(FileStorage(str(tmp_path / "copy.fs"))) as copy:
        copy.copyTransactionsFrom(source)
        scenes.copy_datafs(Show(out), copy, tmp_path / "theirs.fs", source)
        assert len(list(copy.iterator())) == 4
    assert "there already" in out.getvalue()


def test_another_database_is_never_mixed_with_the_copy(source: Any, tmp_path: Path) -> None:
    storage = MappingStorage()
    DB(storage)
    with pytest.raises(scenes.WrongDatabase, match=r"theirs\.fs"):
        scenes.copy_datafs(Show(io.StringIO()), storage, tmp_path / "theirs.fs", source)


def test_an_older_copy_is_not_taken_for_the_whole(source: Any, tmp_path: Path) -> None:
    newest = source.lastTransaction()
    with closing(FileStorage(str(tmp_path / "copy.fs"))) as copy:
        for record in source.iterator(stop=(int.from_bytes(newest) - 1).to_bytes(8)):
            copy.copyTransactionsFrom(OneTransaction(record))
        assert not datafs.has_copy(copy, source)
        with closing(source.iterator(start=newest)) as newer:
            copy.copyTransactionsFrom(OneTransaction(next(newer)))
        assert datafs.has_copy(copy, source)


class OneTransaction:
    """As much of a storage as copyTransactionsFrom needs."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def iterator(self) -> Iterator[Any]:
        return iter([self.record])


def test_the_questions_about_a_datafs_are_answered_in_tables(source: Any) -> None:
    out = io.StringIO()
    topics = scenes.ask_datafs(Show(out), source)
    assert topics == [f"{APPLICATION}.Page", "persistent.mapping.PersistentMapping"]
    assert f"{APPLICATION}.Page" in out.getvalue()
    assert "4 transactions" in out.getvalue()
