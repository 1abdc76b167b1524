"""neomigrate after an earlier run was killed during its last commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ZODB import DB
from ZODB.FileStorage import FileStorage
from ZODB.POSException import StorageError

from neo.migrate import compare, copy_from, starting_point
from neo.protocol.ids import ZERO_TID

TRANSACTIONS = 6


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Any]:
    storage = FileStorage(str(tmp_path / "source.fs"))
    with closing(DB(storage)) as db:
        for number in range(TRANSACTIONS - 1):
            with db.transaction() as connection:
                connection.root()["number"] = number
        yield storage


@pytest.fixture
def destination(tmp_path: Path) -> Iterator[Any]:
    with closing(FileStorage(str(tmp_path / "copy.fs"))) as storage:
        yield storage


class Late:
    """A destination where transactions of an earlier copy arrive when the next copy begins its
    first."""

    def __init__(self, storage: Any, arriving: Iterator[object]) -> None:
        self._storage = storage
        self._arriving: Iterator[object] | None = arriving

    def tpc_begin(self, *arguments: Any) -> None:
        if self._arriving is not None:
            for _ in self._arriving:
                pass
            self._arriving = None
            raise StorageError("not later than the last transaction")
        self._storage.tpc_begin(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def some(count: int, source: Any, destination: Any) -> Iterator[object]:
    """Copy the next transactions, one with each iteration."""
    start = starting_point(source, destination)
    assert start is not None
    with closing(copy_from(start, source, destination)) as steps:
        for _ in range(count):
            yield next(steps)


def test_what_arrived_meanwhile_is_not_copied_again(source: Any, destination: Any) -> None:
    list(some(2, source, destination))
    start = starting_point(source, destination)
    assert start is not None
    late = Late(destination, some(1, source, destination))
    assert len(list(copy_from(start, source, late))) == TRANSACTIONS - 3
    assert [found for _, found in compare(source, destination) if found] == []
    assert starting_point(source, destination) is None


@pytest.mark.parametrize("arrived", [0, 2])
def test_any_other_refusal_is_told(source: Any, destination: Any, arrived: int) -> None:
    """Only one transaction can be on its way; and a refusal may have another reason."""
    late = Late(destination, some(arrived, source, destination))
    with pytest.raises(StorageError, match="not later"):
        list(copy_from(ZERO_TID, source, late))
