"""The tables of a storage node as dictionaries, with the changes since the last commit.

A row is the same tuple as in ``schema/sqlite.sql``, so that rows of all disks can be compared. Indexes
and reference counts are derived from the rows when a disk is opened, and then kept up to date.

Invariant: a row of ``data`` is deleted as soon as its ``uses`` falls to 0. ``uses`` counts the rows of
``obj`` and ``tobj`` that have its id, and ``held``: changes that are stored and not voted yet, which
only the process knows. So data that a process held when it died has no use any more: it is an orphan.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from neo.protocol.blobs import Content, content_of
from neo.protocol.ids import time_from_tid
from neo.storage.backend.sql import to_bytes
from tests.simulator.world import Violation

Key = TypeVar("Key")
Row = TypeVar("Row", bound=tuple[Any, ...])

#: The rows that a disk keeps: table name → key → row.
Image = dict[str, dict[Any, Any]]
#: Written rows, None for deleted ones: table name → key → row.
Changes = dict[str, dict[Any, Any]]

NAMES = (
    *("config", "pt", "trans", "obj", "data", "ttrans", "tobj"),
    *("prepared", "prepared_check", "decided", "content"),
    *("operation", "operation_step"),
)


class ObjectRow(NamedTuple):
    """A row of ``obj``, or of ``tobj``, where ``tid`` is the ttid."""

    partition: int
    oid: int
    tid: int
    data_id: int | None
    value_tid: int | None


class TransactionRow(NamedTuple):
    """A row of ``trans``, or of ``ttrans``, where ``tid`` is None until the transaction is locked."""

    partition: int
    tid: int | None
    packed: int
    oids: bytes
    user: bytes
    description: bytes
    extension: bytes
    ttid: int


class DataRow(NamedTuple):
    id: int
    checksum: bytes
    compression: int
    value: bytes


class ContentRow(NamedTuple):
    data_id: int
    checksum: bytes
    size: int


class PreparedRow(NamedTuple):
    ttid: int
    xid: bytes
    since: float
    text: bytes
    partitions: bytes


class DecidedRow(NamedTuple):
    xid: bytes
    ttid: int
    tid: int | None
    time: float


class Table(dict[Key, Row]):
    """A table: rows by key. Only these two methods change it."""

    def __init__(self, rows: Mapping[Key, Row]) -> None:
        super().__init__(rows)
        self.changed: dict[Key, Row | None] = {}

    def put(self, key: Key, row: Row) -> None:
        self[key] = row
        self.changed[key] = row

    def remove(self, key: Key) -> Row:
        self.changed[key] = None
        return self.pop(key)


def empty_image() -> Image:
    return {name: {} for name in NAMES}


def apply(image: Image, changes: Changes) -> None:
    """Apply a commit, which becomes durable, to the image."""
    for name, changed in changes.items():
        rows = image[name]
        for key, row in changed.items():
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row


class Tables:
    def __init__(self, image: Image) -> None:
        self.config: Table[str, tuple[str, str]] = Table(image["config"])
        self.pt: Table[tuple[int, int], tuple[int, int, int]] = Table(image["pt"])
        self.trans: Table[int, TransactionRow] = Table(image["trans"])  # by tid
        self.obj: Table[tuple[int, int], ObjectRow] = Table(image["obj"])  # by (oid, tid)
        self.data: Table[int, DataRow] = Table(image["data"])
        self.ttrans: Table[int, TransactionRow] = Table(image["ttrans"])  # by ttid
        self.tobj: Table[tuple[int, int], ObjectRow] = Table(image["tobj"])  # by (ttid, oid)
        self.prepared: Table[int, PreparedRow] = Table(image["prepared"])  # by ttid
        #: By (ttid, oid): (ttid, oid, serial).
        self.prepared_check: Table[tuple[int, int], tuple[int, int, int]] = Table(
            image["prepared_check"]
        )
        self.decided: Table[bytes, DecidedRow] = Table(image["decided"])  # by xid
        self.content: Table[int, ContentRow] = Table(image["content"])  # by data id
        self.operation: Table[int, tuple[int, bytes]] = Table(image["operation"])  # by id
        #: By (id, step): (id, step, state, undo, context).
        self.operation_step: Table[tuple[int, int], tuple[int, int, int, bytes, bytes]] = Table(
            image["operation_step"]
        )
        self._all: dict[str, Table[Any, Any]] = {name: getattr(self, name) for name in NAMES}
        #: Data ids of deleted values that referred to a content.
        self.freed: set[int] = set()
        self.uses: Counter[int] = Counter()
        self.held: Counter[int] = Counter()
        self.serials: dict[int, list[int]] = {}  # ascending, by oid
        self.oids: dict[int, list[int]] = {}  # ascending, by partition
        self.revisions: dict[int, list[tuple[int, int]]] = {}  # (tid, oid) ascending, by partition
        self.tids: dict[int, list[int]] = {}  # of trans, ascending, by partition
        self.voted: dict[int, list[int]] = {}  # oids of tobj by ttid
        self.same: dict[tuple[bytes, int], int] = {}  # id of data by checksum and compression
        self._index()

    def _index(self) -> None:
        for oid, tid in sorted(self.obj):
            row = self.obj[oid, tid]
            if oid not in self.serials:
                self.oids.setdefault(row.partition, []).append(oid)
            self.serials.setdefault(oid, []).append(tid)
            self.revisions.setdefault(row.partition, []).append((tid, oid))
        for ascending in self.revisions.values():
            ascending.sort()
        for ttid, oid in sorted(self.tobj):
            self.voted.setdefault(ttid, []).append(oid)
        for tid in sorted(self.trans):
            self.tids.setdefault(self.trans[tid].partition, []).append(tid)
        for table in (self.obj, self.tobj):
            self.uses.update(row.data_id for row in table.values() if row.data_id is not None)
        for data_id, checksum, compression, _ in self.data.values():
            self.same[checksum, compression] = data_id

    def regroup(self, partitions: int) -> None:
        """Group the rows for another number of partitions."""
        for objects in (self.obj, self.tobj):
            for key, row in list(objects.items()):
                objects.put(key, row._replace(partition=row.oid % partitions))
        for tid, transaction in list(self.trans.items()):
            self.trans.put(tid, transaction._replace(partition=tid % partitions))
        for ttid, voted in list(self.ttrans.items()):
            self.ttrans.put(ttid, voted._replace(partition=ttid % partitions))
        for ascending in (self.serials, self.oids, self.revisions, self.tids, self.voted):
            ascending.clear()
        self.uses = Counter(self.held)
        self._index()

    # -- commits and comparisons -----------------------------------------------------------------

    def take_changes(self) -> Changes:
        """Return the changes since the last call."""
        changes: Changes = {}
        for name, table in self._all.items():
            if table.changed:
                changes[name] = table.changed
                table.changed = {}
        return changes

    def image(self) -> Image:
        return {name: dict(table) for name, table in self._all.items()}

    def validate(self, name: str) -> None:
        """Raise Violation if an index does not match the rows: that is a bug of this module."""
        again = Tables(self.image())
        again.uses.update(self.held)
        for index in ("uses", "serials", "oids", "revisions", "tids", "voted"):
            mine, right = getattr(self, index), getattr(again, index)
            if index == "voted":
                mine = {ttid: sorted(oids) for ttid, oids in mine.items()}
            if {k: v for k, v in mine.items() if v} != right:
                raise Violation(f"{name}: the index {index!r} in memory is wrong")

    # -- data and its references -----------------------------------------------------------------

    def add_data(self, row: DataRow) -> None:
        if row.id in self.data:
            raise Violation(f"row {row.id} of 'data' is written twice")
        if row.id in self.content:
            raise Violation(f"id {row.id:#x} is given, which content has already")
        self.data.put(row.id, row)
        content = content_of(row.value) if not row.compression else None
        if content is not None:
            self.content.put(row.id, ContentRow(row.id, content.checksum, content.size))
        self.same[row.checksum, row.compression] = row.id

    def data_ids(self) -> set[int]:
        """Return the ids that any table has: none is given again."""
        found = {*self.data, *self.content}
        for table in (self.obj, self.tobj):
            found.update(row.data_id for row in table.values() if row.data_id is not None)
        return found

    def hold(self, data_id: int) -> None:
        self.uses[data_id] += 1
        self.held[data_id] += 1

    def _unhold(self, data_id: int, what: str) -> None:
        held = self.held.get(data_id, 0)
        if not held:
            raise Violation(f"{what} of data {data_id:#x}, to which no change refers")
        if held == 1:
            del self.held[data_id]
        else:
            self.held[data_id] = held - 1

    def release(self, data_ids: Iterable[int]) -> None:
        for data_id in data_ids:
            self._unhold(data_id, "release")
            self._unuse(data_id)

    def _unuse(self, data_id: int | None) -> None:
        if data_id is None:
            return
        uses = self.uses[data_id] - 1
        if uses:
            self.uses[data_id] = uses
            return
        del self.uses[data_id]
        self.prune(data_id)

    def prune(self, data_id: int) -> None:
        """Delete data, unless it is used again."""
        if self.uses.get(data_id) or data_id not in self.data:
            return
        row = self.data.remove(data_id)
        if data_id in self.content:
            self.freed.add(data_id)
        if self.same.get((row.checksum, row.compression)) == data_id:
            del self.same[row.checksum, row.compression]

    # -- objects ---------------------------------------------------------------------------------

    def put_object(self, row: ObjectRow) -> None:
        """Add a row. The caller passes its use of the data on to the row."""
        partition, oid, tid, _, _ = row
        replaced = self.obj.get((oid, tid))
        self.obj.put((oid, tid), row)
        if replaced is not None:
            self._unuse(replaced.data_id)
            return
        insort(self.revisions.setdefault(partition, []), (tid, oid))
        serials = self.serials.get(oid)
        if serials is None:
            self.serials[oid] = [tid]
            insort(self.oids.setdefault(partition, []), oid)
        else:
            insort(serials, tid)

    def replicate(self, row: ObjectRow) -> None:
        """Add a row that was replicated; its data is held."""
        if row.data_id is not None:
            self._unhold(row.data_id, "replication")
        self.put_object(row)

    def link_undone(self, partition: int) -> None:
        """Give their data to undos whose data was not known when they were voted."""
        for oid in self.oids.get(partition, []):
            for tid in self.serials[oid]:
                row = self.obj[oid, tid]
                if row.data_id is None and row.value_tid is not None:
                    value = self.obj.get((oid, row.value_tid))
                    if value is not None and value.data_id is not None:
                        self.uses[value.data_id] += 1
                        self.obj.put((oid, tid), row._replace(data_id=value.data_id))

    def unlink(self, oid: int, tid: int) -> None:
        row = self.obj[oid, tid]
        self.obj.put((oid, tid), row._replace(data_id=None))
        self._unuse(row.data_id)

    def repoint(self, oid: int, tid: int, value_tid: int | None) -> None:
        self.obj.put((oid, tid), self.obj[oid, tid]._replace(value_tid=value_tid))

    def remove_object(self, oid: int, tid: int) -> None:
        row = self.obj.remove((oid, tid))
        ascending = self.revisions[row.partition]
        del ascending[bisect_left(ascending, (tid, oid))]
        serials = self.serials[oid]
        del serials[bisect_left(serials, tid)]
        if not serials:
            del self.serials[oid]
            oids = self.oids[row.partition]
            del oids[bisect_left(oids, oid)]
        self._unuse(row.data_id)

    # -- transactions ----------------------------------------------------------------------------

    def vote(self, rows: Iterable[ObjectRow]) -> None:
        """Add rows to ``tobj``, which use the data that was held until now."""
        for row in rows:
            _, oid, ttid, data_id, _ = row
            if (ttid, oid) in self.tobj:
                raise Violation(f"object {oid:016x} is voted twice in transaction {ttid:016x}")
            if data_id is not None:
                self._unhold(data_id, "vote")
            self.tobj.put((ttid, oid), row)
            self.voted.setdefault(ttid, []).append(oid)

    def vote_transaction(self, row: TransactionRow) -> None:
        if row.ttid in self.ttrans:
            raise Violation(f"the metadata of transaction {row.ttid:016x} is voted twice")
        self.ttrans.put(row.ttid, row)

    def lock(self, ttid: int, tid: int) -> None:
        row = self.ttrans.get(ttid)
        if row is not None:
            self.ttrans.put(ttid, TransactionRow(row[0], tid, *row[2:]))

    def unlock(self, ttid: int, tid: int, partition: int, validation: bool) -> None:
        row = self.ttrans.get(ttid)
        mark = self.remove_mark(ttid)
        if mark is not None and row is not None:
            seconds = time_from_tid(to_bytes(tid))
            self.decided.put(mark.xid, DecidedRow(mark.xid, ttid, tid, seconds))
        if row is not None:
            if not validation and row.tid not in (None, tid):
                raise Violation(f"transaction {ttid:016x}: locked as {row.tid}, unlocked as {tid}")
            self.ttrans.remove(ttid)
            if tid not in self.trans:
                insort(self.tids.setdefault(partition, []), tid)
            self.trans.put(tid, TransactionRow(partition, tid, *row[2:]))
        for oid in self.voted.pop(ttid, ()):
            of_oid, _, _, data_id, value_tid = self.tobj.remove((ttid, oid))
            self.put_object(ObjectRow(of_oid, oid, tid, data_id, value_tid))

    def abort(self, ttid: int) -> None:
        self.remove_mark(ttid)
        if ttid in self.ttrans:
            self.ttrans.remove(ttid)
        for oid in self.voted.pop(ttid, ()):
            self._unuse(self.tobj.remove((ttid, oid)).data_id)

    def drop_unfinished(self, keep: set[int]) -> None:
        for ttid in sorted({*self.voted, *self.ttrans, *self.prepared} - keep):
            self.abort(ttid)
        for ttid, row in list(self.ttrans.items()):
            self.ttrans.put(ttid, TransactionRow(row[0], None, *row[2:]))

    # -- prepared transactions -------------------------------------------------------------------

    def mark(self, row: PreparedRow, checks: Iterable[tuple[int, int, int]]) -> None:
        self.prepared.put(row.ttid, row)
        for check in checks:
            self.prepared_check.put(check[:2], check)

    def remove_mark(self, ttid: int) -> PreparedRow | None:
        for key in [key for key in self.prepared_check if key[0] == ttid]:
            self.prepared_check.remove(key)
        return self.prepared.remove(ttid) if ttid in self.prepared else None

    def remove_prepared(self, ttid: int, partition: int, modulo: int) -> None:
        """Remove what a prepared transaction stores and checks in a partition."""
        self.remove_voted(ttid, partition, modulo)
        self.remove_checks(ttid, partition, modulo)
        if ttid % modulo == partition and ttid in self.ttrans:
            self.ttrans.remove(ttid)

    def remove_voted(self, ttid: int, partition: int, modulo: int) -> None:
        """Remove what a transaction stores in a partition."""
        kept = []
        for oid in self.voted.pop(ttid, ()):
            if oid % modulo == partition:
                self._unuse(self.tobj.remove((ttid, oid)).data_id)
            else:
                kept.append(oid)
        if kept:
            self.voted[ttid] = kept

    def remove_checks(self, ttid: int, partition: int, modulo: int) -> None:
        """Remove what a transaction checks in a partition."""
        for key in [k for k in self.prepared_check if k[0] == ttid and k[1] % modulo == partition]:
            self.prepared_check.remove(key)

    def replace_metadata(self, row: TransactionRow) -> None:
        self.ttrans.put(row.ttid, row)

    def unlink_prepared(self, oid: int, tids: set[int]) -> None:
        for ttid in self.prepared:
            row = self.tobj.get((ttid, oid))
            if row is not None and row.data_id is not None and row.value_tid in tids:
                self.tobj.put((ttid, oid), row._replace(data_id=None))
                self._unuse(row.data_id)

    def truncate_decided(self, last: int, partitions: Sequence[int], modulo: int) -> None:
        for row in list(self.decided.values()):
            if row.tid is not None and row.tid > last and row.ttid % modulo in partitions:
                self.decided.remove(row.xid)

    def drop_decided(self, partition: int, modulo: int) -> None:
        for row in list(self.decided.values()):
            if row.ttid % modulo == partition:
                self.decided.remove(row.xid)

    def forget_decided(self, xid: bytes) -> None:
        if xid in self.decided:
            self.decided.remove(xid)

    def put_transaction(self, row: TransactionRow) -> None:
        assert row.tid is not None
        if row.tid not in self.trans:
            insort(self.tids.setdefault(row.partition, []), row.tid)
        self.trans.put(row.tid, row)

    def remove_transactions(self, partition: int, first: int, last: int) -> None:
        """Remove the rows of ``trans`` from ``first`` to ``last``."""
        tids = self.tids.get(partition, [])
        start, end = bisect_left(tids, first), bisect_right(tids, last)
        for tid in tids[start:end]:
            self.trans.remove(tid)
        del tids[start:end]

    # -- contents of blobs -----------------------------------------------------------------------

    def has_content(self, checksum: bytes) -> bool:
        return any(r.checksum == checksum and r.data_id in self.data for r in self.content.values())

    def contents(self, after: bytes, length: int) -> list[Content]:
        rows = [row for row in self.content.values() if row.data_id in self.data]
        found = {row.checksum: row.size for row in rows if row.checksum > after}
        return [Content(found[checksum], checksum) for checksum in sorted(found)[:length]]

    def size_of_only(self, data_ids: Sequence[int]) -> int:
        """Return the bytes of contents to which these values refer, and no others."""
        others = (i for i in self.content if i not in data_ids and i in self.data)
        used = {self.content[i].checksum for i in others}
        mine = [self.content[i] for i in data_ids if i in self.content]
        return sum({r.checksum: r.size for r in mine if r.checksum not in used}.values())

    def forget_contents(self, data_ids: Iterable[int]) -> set[bytes]:
        """Remove rows of ``content`` whose value is gone; return their checksums."""
        gone = [i for i in data_ids if i in self.content and i not in self.data]
        return {self.content.remove(data_id).checksum for data_id in gone}
