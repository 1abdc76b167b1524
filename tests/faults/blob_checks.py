"""What must be true of uploads (:mod:`tests.faults.blob_writer`), in all revisions and on all nodes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ZODB.DB import DB

from neo.protocol.blobs import Content, content_of
from tests.faults.blob_writer import FINISHED, SLOTS, WRITERS, Uploads, planned
from tests.faults.contents import files, parts
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until

#: Rows that belong to a transaction in progress, or to nothing.
_LEFT = {
    "transactions in progress": "SELECT tid FROM ttrans UNION ALL SELECT tid FROM tobj",
    "rows of data without a revision": (
        "SELECT id FROM data WHERE NOT EXISTS (SELECT 1 FROM obj WHERE data_id=data.id)"
    ),
    "rows of content without data": (
        "SELECT data_id FROM content WHERE NOT EXISTS (SELECT 1 FROM data WHERE id=data_id)"
    ),
}
_REFERENCES = "SELECT id, value, size, checksum FROM data LEFT JOIN content ON data_id=data.id"
_LACKING = "SELECT oid, tid FROM obj WHERE data_id NOT IN (SELECT id FROM data)"


class Oracle:
    """Knows what is checked already: revisions never change, but each is read again by :meth:`whole`."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._ledgers = [Uploads(folder, writer) for writer in range(WRITERS)]
        self._checked: set[tuple[int, int]] = set()
        with self._open() as db, db.transaction() as connection:
            root = connection.root()
            self._own = {writer: root[writer]._p_oid for writer in range(WRITERS)}
            self._items: dict[tuple[int, int], tuple[bytes, bytes]] = {}
            for writer in range(WRITERS):
                for slot in range(SLOTS):
                    item = root[writer, slot]
                    self._items[writer, slot] = item._p_oid, item["blob"]._p_oid

    def _open(self) -> closing[DB]:
        """Return a new client, whose cache is empty."""
        return closing(DB(self._cluster.storage(wait_timeout=PATIENCE_SECONDS)))

    def whole(self) -> int:
        """Check all revisions. Return the number of transactions."""
        self._checked.clear()
        return self.check()

    def check(self) -> int:
        """Check what was not checked yet: what was acknowledged is there at its tid, byte by byte; each
        transaction is there as a whole; none that was aborted is there. Return their number."""
        acknowledged = [ledger.tids() for ledger in self._ledgers]  # before it is looked
        with self._open() as db:
            found = self._transactions(db)
            for writer, tids in enumerate(acknowledged):
                for number, tid in tids.items():
                    there = found.get((writer, number))
                    assert there == tid, (
                        f"writer {writer}: {number} was acknowledged with tid {tid.hex()}, and"
                        f" {there.hex() if there else 'nothing'} is there"
                    )
            for (writer, number), tid in found.items():
                if (writer, number) not in self._checked:
                    self._check_contents(db, writer, number, tid)
                    self._checked.add((writer, number))
        return len(found)

    def _transactions(self, db: DB) -> dict[tuple[int, int], bytes]:
        """Return the tids of all transactions, by writer and number."""
        found: dict[tuple[int, int], bytes] = {}
        for there in db.storage.iterator():
            words = there.description.split()
            if len(words) != 2 or not all(word.isdigit() for word in words):
                continue
            writer, number = key = int(words[0]), int(words[1])
            plan = planned(writer, number)
            assert plan.end == FINISHED, f"writer {writer}: {number} was {plan.end}, and is there"
            assert key not in found, f"writer {writer}: {number} is there twice"
            found[key] = there.tid
            oids = {self._own[writer]}
            oids.update(oid for slot in plan.contents for oid in self._items[writer, slot])
            stored = {record.oid for record in there}
            assert stored == oids, f"writer {writer}: {len(stored)} of {len(oids)} objects of {number}"
        return found

    def _check_contents(self, db: DB, writer: int, number: int, tid: bytes) -> None:
        with closing(db.open(at=tid)) as connection:
            assert connection.root()[writer]["data"] == planned(writer, number).data
            for slot, content in planned(writer, number).contents.items():
                item = connection.root()[writer, slot]
                assert item["number"] == number, (writer, slot, number, item["number"])
                wrong = content.problem(item["blob"])
                assert wrong is None, wrong

    # -- storage nodes, while no client stores -----------------------------------------------------

    def check_tables(self, name: str) -> int:
        """Check the database and the folder of a storage node: each value has its content, and in the end
        nothing is left that nothing refers to. Return the number of contents."""
        wait_until(lambda: not self._left(name), lambda: f"{name} has {self._left(name)}")
        lacking = self._cluster.query(name, _LACKING)
        assert not lacking, f"{name} has revisions without data: {lacking[:3]}"
        for data_id, value, size, checksum in self._cluster.query(name, _REFERENCES):
            row = None if size is None else Content(size, bytes(checksum))
            assert content_of(bytes(value)) == row, f"{name}: row {data_id} of data has content {row}"
        return len(self._rows(name))

    def _rows(self, name: str) -> set[bytes]:
        return {bytes(row[0]) for row in self._cluster.query(name, "SELECT checksum FROM content")}

    def _left(self, name: str) -> str:
        """Return what is left on a node of transactions that have ended, and of contents."""
        left = {what: len(self._cluster.query(name, query)) for what, query in _LEFT.items()}
        wanted, present = self._rows(name), files(self._cluster, name)
        left["files without rows"] = len(present - wanted)
        left["rows without files"] = len(wanted - present)
        left["parts"] = len(parts(self._cluster, name))
        return ", ".join(f"{count} {what}" for what, count in left.items() if count)
