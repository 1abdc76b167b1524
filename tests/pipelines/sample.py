"""A database with everything that a pipeline must understand, and what is in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import persistent
import ZODB
from BTrees.OOBTree import OOBTree
from persistent.wref import WeakRef
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64, u64

#: Oids of objects that are never created: references to them are broken.
MISSING = 10**9


class Document(persistent.Persistent):
    def __init__(self, number: int) -> None:
        self.number = number
        self.text = f"text of document {number} " * (number % 7)


class Folder(persistent.Persistent):
    pass


@dataclass
class Sample:
    """``revisions``: (oid, tid) → data of all that were committed, None where a creation was undone;
    ``tids`` in their order."""

    storage: Any
    tids: list[int] = field(default_factory=list)
    revisions: dict[tuple[int, int], bytes | None] = field(default_factory=dict)

    def snapshot(self, tid: int) -> dict[int, tuple[int, bytes]]:
        """oid → (tid, data) of what exists at a tid."""
        found: dict[int, tuple[int, bytes | None]] = {}
        for (oid, serial), data in sorted(self.revisions.items(), key=lambda item: item[0][1]):
            if serial <= tid:
                found[oid] = serial, data
        return {oid: (t, data) for oid, (t, data) in found.items() if data is not None}

    def read_back(self) -> None:
        """What ZODB's own iteration says is in the storage."""
        self.tids.clear()
        self.revisions.clear()
        for transaction in self.storage.iterator():
            self.tids.append(u64(transaction.tid))
            for record in transaction:
                self.revisions[u64(record.oid), u64(record.tid)] = record.data


def fill(storage: Any) -> Sample:
    """Documents in a tree, changed, one deleted, a weak and a broken reference, an undone creation."""
    db = ZODB.DB(storage)
    for batch in range(4):
        with db.transaction(f"batch {batch}") as connection:
            root = connection.root()
            if not batch:
                root["folder"] = folder = Folder()
                folder.documents = OOBTree()
            folder = root["folder"]
            for number in range(batch * 50, batch * 50 + 50):
                folder.documents[f"{number:04}"] = Document(number)
            for number in range(0, batch * 50, 9):
                folder.documents[f"{number:04}"].number += 1000
    with db.transaction("a weak reference") as connection:
        folder = connection.root()["folder"]
        folder.favourite = WeakRef(folder.documents["0001"])
        del folder.documents["0002"]
    with db.transaction("a creation") as connection:
        connection.root()["mistake"] = Document(999)
    undone = db.undoLog(0, 1)[0]["id"]
    with db.transaction("its undo") as connection:
        db.undo(undone, connection.transaction_manager.get())
    store(
        storage,
        5000,
        b"\x80\x03cno.such\nClass\nq\0.\x80\x03}X\1\0\0\0rC\x08" + p64(MISSING) + b"Qs.",
    )
    store(storage, 5001, b"this is no pickle")
    sample = Sample(storage)
    sample.read_back()
    return sample


def store(storage: Any, oid: int, data: bytes) -> None:
    meta = TransactionMetaData(description="a record of another program")
    storage.tpc_begin(meta)
    storage.store(p64(oid), p64(0), data, "", meta)
    storage.tpc_vote(meta)
    storage.tpc_finish(meta)
