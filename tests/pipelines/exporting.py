"""Exports, what they must hold, and databases that change between them."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from ZODB import DB
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64, u64

from neo.client.history.scan import Scanner
from neo.export import main
from neo.export.plan import DEFAULT_COLUMNS
from neo.migrate import copy_from
from neo.protocol.ids import ZERO_TID
from neo.spark.reading import Query, read
from neo.spark.tables import TABLES, columns_of
from tests.pipelines.sample import Document
from tests.zodb.fleet import NAME, Fleet

Capture = pytest.CaptureFixture[str]
Rows = list[dict[str, Any]]
#: Of revisions, what an export has by default, and all that is possible.
ALL = [column.name for column in TABLES["objects"]]


def exported(folder: Path, table: str) -> Rows:
    """Sorted rows of a table, as any reader of Parquet finds them."""
    found: Rows = pq.read_table(folder / table).to_pylist()
    return ordered(found)


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def direct(storage: Any, table: str, last: int | None = None, columns: Any = None) -> Rows:
    """What Spark's reader gives for a cluster, with the columns of an export."""
    scanner = Scanner(storage)
    left_out = set(ALL).difference(columns or DEFAULT_COLUMNS)
    names = [column.name for column in TABLES[table] if column.name not in left_out]
    last = last or u64(scanner.last_tid())
    query = Query(table, columns_of(table, names), last, packed=scanner.packed())
    batches = [b for p in range(scanner.partitions) for b in read(scanner, query, p)]
    return ordered([row for batch in batches for row in batch.to_pylist()])


def same_as_cluster(folder: Path, storage: Any, columns: Any = None) -> None:
    for table in TABLES:
        assert exported(folder, table) == direct(storage, table, columns=columns), table


def uri(fleet: Fleet) -> str:
    return f"neo://{NAME}@{fleet.masters}"


def export(source: object, folder: Path, *options: str) -> None:
    """In this process: with --jobs, others are started, which takes a second."""
    common = [str(source), "--parquet", str(folder), "--quiet", "--jobs", "1"]
    assert main([*common, *options]) == 0


def copy_into(source: Any, path: Path) -> None:
    with closing(FileStorage(str(path))) as file:
        last = file.lastTransaction()
        start = ZERO_TID if last == ZERO_TID else p64(u64(last) + 1)
        for _ in copy_from(start, source, file):
            pass


def change(storage: Any, number: int) -> None:
    """Documents written, made and made no more, in three transactions."""
    db = DB(storage)
    with db.transaction(f"change {number}") as connection:
        folder = connection.root()["folder"]
        for key in list(folder.documents)[:: 5 + number]:
            folder.documents[key].number += 1
        connection.root()[f"new {number}"] = Document(number)
    with db.transaction("soon undone") as connection:
        connection.root()["mistake"] = Document(998)
    with db.transaction("its undo") as connection:
        db.undo(db.undoLog(0, 1)[0]["id"], connection.transaction_manager.get())


def refused(capsys: Capture, source: object, folder: Path, *options: str) -> str:
    capsys.readouterr()
    assert main([str(source), "--parquet", str(folder), "--quiet", *options]) == 1
    return capsys.readouterr().err


class Killed(BaseException):
    """Takes the place of a signal: nothing of what comes after it is done."""


#: All that changes what is on disk, besides the bytes of files with temporary names.
MOMENTS = ("fsync", "rename", "replace", "link", "symlink", "unlink", "mkdir", "rmdir")


def killed_at(number: int, source: Path, folder: Path, patch: pytest.MonkeyPatch) -> bool:
    """Whether an export was killed at a moment; False if it ended before."""
    left = number

    def dying(do: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return do(*arguments, **options)

        return call

    with patch.context() as context:
        for name in MOMENTS:
            context.setattr(os, name, dying(getattr(os, name)))
        try:
            export(source, folder)
        except Killed:
            return True
    return False
