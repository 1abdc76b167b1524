"""A database with blobs: every way in which a revision of a blob comes into being."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import transaction
from ZODB import DB
from ZODB.blob import Blob, is_blob_record
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError

BIG = b"0123456789abcdef" * (3 << 16)
#: Revisions of blobs with a content.
CONTENTS = 17
#: Transactions that made them. One more makes the root.
TRANSACTIONS = 9


class Source(NamedTuple):
    """A FileStorage. ``path``: of the file; ``folder``: of its blobs."""

    path: Path
    folder: Path

    def open(self) -> Any:
        return closing(FileStorage(str(self.path), blob_dir=str(self.folder)))


def make(folder: Path, layout: str | None = None) -> Source:
    """Make a database whose blobs were created, changed, shared, emptied and undone."""
    source = Source(folder / "source.fs", folder / "source-blobs")
    if layout is not None:
        # With a new file, a FileStorage removes the folder.
        FileStorage(str(source.path)).close()
        source.folder.mkdir()
        (source.folder / ".layout").write_text(layout)
    with source.open() as storage, closing(DB(storage)) as db:
        change(db, "first", first=b"one", same=b"one", empty=b"")
        change(db, "big", big=BIG)
        change(db, "again", first=b"two")
        undo(db)  # of a change
        undo(db)  # of the undo
        change(db, "created", short=b"short lived")
        undo(db)  # of a creation
        undo(db)  # of the undo of a creation
        change(db, "many", **{f"many-{number}": b"%d" % number * 50 for number in range(8)})
    return source


def change(db: Any, note: str, **contents: bytes) -> None:
    """Create or change blobs in one transaction."""
    with db.transaction(note) as connection:
        root = connection.root()
        for name, content in contents.items():
            blob = root.get(name) or Blob()
            with closing(blob.open("w")) as file:
                file.write(content)
            root[name] = blob


def undo(db: Any) -> None:
    """Undo the last transaction."""
    db.undo(db.undoInfo(0, 1)[0]["id"], transaction.get())
    transaction.commit()


def contents(storage: Any) -> dict[tuple[bytes, bytes], bytes | None]:
    """Return the content of every revision of a blob; None if it is missing."""
    return {(record.oid, record.tid): content(storage, record) for record in blob_records(storage)}


def content(storage: Any, record: Any) -> bytes | None:
    try:
        return Path(storage.loadBlob(record.oid, record.tid)).read_bytes()
    except POSKeyError:
        return None


def blob_records(storage: Any) -> Iterator[Any]:
    """Yield all records of blobs."""
    for found in storage.iterator():
        yield from (record for record in found if is_blob_record(record.data))


def files(folder: Path) -> list[Path]:
    """Return the files of blobs in a folder, the newest revision last."""
    return sorted(folder.rglob("*.blob"), key=lambda path: path.name)
