"""neoexport: the tables that Spark reads from NEO, as files; as they were after each export."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import transaction
from ZODB import DB
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64, u64

from neo.client.scan import Scanner
from neo.export import main
from neo.export.plan import DEFAULT_COLUMNS
from neo.migrate import copy_from
from neo.protocol.ids import ZERO_TID
from neo.spark.reading import Query, read
from neo.spark.tables import TABLES, columns_of
from tests.pipelines.sample import Document, Sample
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
    query = Query(table, columns_of(table, names), last or u64(scanner.last_tid()))
    batches = [b for p in range(scanner.partitions) for b in read(scanner, query, p)]
    return ordered([row for batch in batches for row in batch.to_pylist()])


def same_as_cluster(folder: Path, storage: Any, columns: Any = None) -> None:
    for table in TABLES:
        assert exported(folder, table) == direct(storage, table, columns=columns), table


def uri(fleet: Fleet) -> str:
    return f"neo://{NAME}@{fleet.masters}"


def export(source: object, folder: Path, *options: str) -> None:
    assert main([str(source), "--parquet", str(folder), "--quiet", *options]) == 0


@pytest.fixture
def copied(sample: Sample, tmp_path: Path) -> Path:
    """The sample in a FileStorage, with the same tids."""
    path = tmp_path / "copied.fs"
    copy_into(sample.storage, path)
    return path


def copy_into(source: Any, path: Path) -> None:
    with closing(FileStorage(str(path))) as file:
        last = file.lastTransaction()
        start = ZERO_TID if last == ZERO_TID else p64(u64(last) + 1)
        for _ in copy_from(start, source, file):
            pass


def without(rows: Rows, *columns: str) -> Rows:
    return ordered([{k: v for k, v in row.items() if k not in columns} for row in rows])


def change(storage: Any, number: int) -> None:
    """Documents written, made and made no more, in three transactions."""
    with closing(DB(storage)) as db:
        # The storage goes on to be used.
        db.close = lambda: None
        with db.transaction(f"change {number}") as connection:
            folder = connection.root()["folder"]
            for key in list(folder.documents)[:: 5 + number]:
                folder.documents[key].number += 1
            connection.root()[f"new {number}"] = Document(number)
        with db.transaction("soon undone") as connection:
            connection.root()["mistake"] = Document(998)
        undone = db.undoLog(0, 1)[0]["id"]
        db.undo(undone, transaction.get())
        transaction.commit()


# -- what is exported ----------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_a_cluster(sample: Sample, fleet: Fleet, tmp_path: Path, jobs: str) -> None:
    export(uri(fleet), tmp_path / "out", "--jobs", jobs)
    same_as_cluster(tmp_path / "out", sample.storage)
