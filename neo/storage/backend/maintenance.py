"""Truncation, pack, pruning of orphans and deletion of partitions, in small resumable steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import eq

from neo.storage.backend import revisions
from neo.storage.backend.commits import Commits
from neo.storage.backend.revisions import LookAhead, Revision
from neo.storage.backend.sql import MAX_TID, SET_VALUE_TID, Engine, Row, bound, to_bytes
from neo.storage.backend.tables import Tables
from neo.storage.backend.values import Values

_DATA_IDS = "SELECT data_id FROM obj WHERE `partition`=? AND tid>? AND data_id IS NOT NULL"

# Of the queries of a pack, <PRIMARY> is the dialect's hint.
_OID_AFTER_ROWS = (
    "SELECT oid FROM obj<PRIMARY> WHERE `partition`=? AND oid>=? ORDER BY oid, tid LIMIT 1 OFFSET ?"
)
_NEXT_OID = "SELECT oid FROM obj<PRIMARY> WHERE `partition`=? AND oid>? ORDER BY oid LIMIT 1"
#: Objects with something to remove: several revisions up to a tid, or a deletion alone.
_TO_PACK = (
    "SELECT oid FROM obj<PRIMARY> WHERE `partition`=? AND oid>=? AND oid<=? AND tid<=?"
    " GROUP BY oid HAVING COUNT(*)>1 OR COUNT(data_id)=0 ORDER BY oid LIMIT ?"
)
_UP_TO = "SELECT 1 FROM obj<PRIMARY> WHERE `partition`=? AND oid>? AND oid<=? AND tid<=? LIMIT 1"
_REVISIONS = (
    "SELECT oid, tid, data_id, value_tid FROM obj<PRIMARY>"
    " WHERE `partition`=? AND oid IN (<OIDS>) ORDER BY oid, tid"
)
#: Rows that a step of a pack looks at for each object that it may change: a database passes over one
#: of these in 0.2 to 1 µs, so that they take no longer than the changes. Most objects need none.
ROWS_PER_OBJECT = 50
_FIRST_REVISIONS = "SELECT oid, tid, data_id FROM obj WHERE `partition`=? ORDER BY oid, tid LIMIT ?"
_FIRST_TIDS = "SELECT tid FROM trans WHERE `partition`=? ORDER BY tid LIMIT ?"
_DELETE_REVISIONS = "DELETE FROM obj WHERE `partition`=? AND oid=? AND tid<=?"


class Maintenance:
    def __init__(
        self, engine: Engine, tables: Tables, values: Values, commits: Commits
    ) -> None:
        self._engine = engine
        self._tables = tables
        self._values = values
        self._commits = commits
        self._read = engine.read
        self._write = engine.write
        self._hint = "<PRIMARY>", engine.dialect.primary_key

    def truncate(self, tid: bytes, partitions: Sequence[int]) -> None:
        self._engine.drain()
        last = bound(tid)
        for partition in partitions:
            ids = self._read(_DATA_IDS, partition, last)
            self._write("DELETE FROM obj WHERE `partition`=? AND tid>?", partition, last)
            self._write("DELETE FROM trans WHERE `partition`=? AND tid>?", partition, last)
            self._values.collect(data_id for (data_id,) in ids)
        self._commits.prepared.truncate(last, partitions)
        self._tables.truncated(tid, partitions)

    def pack(
        self,
        tid: bytes,
        partition: int,
        min_oid: bytes,
        length: int,
        ahead: LookAhead | None = None,
    ) -> bytes | None:
        self._engine.drain()
        limit, first = bound(tid), bound(min_oid)
        self._tables.packed(limit)
        rows_max = ROWS_PER_OBJECT * length
        last = self._end(partition, first, rows_max)
        until = MAX_TID if last is None else last
        found = self._scan(_TO_PACK, partition, first, until, limit, length + 1)
        oids, following = found[:length], found[length:]
        is_last: bool | None = False
        if oids:
            rows = self._revisions(partition, oids)
            if not following and _is_deletion(rows, oids[-1], limit):
                is_last = self._is_last(partition, oids[-1], limit, rows_max, ahead or LookAhead())
                if is_last is None:
                    following = [oids[-1]]
                    rows = [row for row in rows if row[0] != oids[-1]]
            self._pack_rows(rows, limit, partition, oids[-1] if is_last else None)
        if last is not None and not following:
            following = self._scan(_NEXT_OID, partition, last)
        return to_bytes(following[0]) if following else None

    def _end(self, partition: int, first: int, rows_max: int) -> int | None:
        """Return the oid so many rows behind the first row from ``first`` on; None: there are fewer."""
        end = self._scan(_OID_AFTER_ROWS, partition, first, rows_max)
        return end[0] if end else None

    def _scan(self, sql: str, *args: int) -> list[int]:
        """Return the oids that a query by the primary key finds."""
        return [oid for (oid,) in self._read(sql.replace(*self._hint), *args)]

    def _revisions(self, partition: int, oids: Sequence[int]) -> Sequence[Row]:
        sql = _REVISIONS.replace("<OIDS>", ",".join(map(str, oids)))
        return self._read(sql.replace(*self._hint), partition)

    def _pack_rows(
        self, rows: Sequence[Row], tid: int, partition: int, last: int | None
    ) -> None:
        """Pack objects by their rows. ``last``: the greatest oid with revisions up to ``tid``, if it is
        one of these and a deletion."""
        released: list[int] = []
        for oid, of_oid in groupby(rows, lambda row: row[0]):
            known = [Revision(*row[1:]) for row in of_oid]
            removed, changed = revisions.pack(known, tid, partial(eq, oid, last))
            if removed:
                self._write(_DELETE_REVISIONS, partition, oid, removed[-1].tid)
                released += [r.data_id for r in removed if r.data_id is not None]
            for serial, value_tid in changed:
                self._write(SET_VALUE_TID, value_tid, partition, oid, serial)
        self._values.collect(released)

    def _is_last(
        self, partition: int, oid: int, tid: int, rows_max: int, ahead: LookAhead
    ) -> bool | None:
        """Return whether no greater oid of the partition has revisions up to ``tid``; None: the next so
        many rows do not show it, and the next step goes on behind them."""
        begin = ahead.until if ahead.oid == oid else oid
        until = self._end(partition, begin + 1, rows_max)
        last = MAX_TID if until is None else until
        if self._read(_UP_TO.replace(*self._hint), partition, begin, last, tid):
            return False
        ahead.oid, ahead.until = oid, last
        return True if until is None else None

    def prune_orphans(self, dry_run: bool, min_id: int, length: int) -> tuple[int, int, int | None]:
        self._engine.drain()
        step = self._read("SELECT id FROM data WHERE id>=? ORDER BY id LIMIT ?", min_id, length + 1)
        next_id = step[length][0] if len(step) > length else None
        if not step:
            return 0, 0, None
        found = self._read(
            f"SELECT d.id, {self._engine.dialect.value_length} FROM data d WHERE d.id>=? AND d.id<=?"
            " AND NOT EXISTS (SELECT 1 FROM obj WHERE data_id=d.id)",
            min_id,
            step[:length][-1][0],
        )
        orphans = [(data_id, int(size)) for data_id, size in found if data_id not in self._values.pending]
        size = sum(size for _, size in orphans)
        size += self._values.size_of_contents([data_id for data_id, _ in orphans])
        if not dry_run:
            self._values.collect(data_id for data_id, _ in orphans)
        return len(orphans), size, next_id

    def drop_partition(self, partition: int, length: int) -> bool:
        self._engine.drain()
        self._commits.remove_prepared(partition)
        rows = self._read(_FIRST_REVISIONS, partition, length)
        if rows:
            oid, tid, _ = rows[-1]
            self._write("DELETE FROM obj WHERE `partition`=? AND oid<?", partition, oid)
            self._write(_DELETE_REVISIONS, partition, oid, tid)
            self._values.collect(data_id for _, _, data_id in rows if data_id is not None)
        left = length - len(rows)
        if left > 0:
            rows = self._read(_FIRST_TIDS, partition, left)
            if rows:
                last = rows[-1][0]
                self._write("DELETE FROM trans WHERE `partition`=? AND tid<=?", partition, last)
            left -= len(rows)
        if left:
            self._commits.prepared.drop_partition(partition)
        return left == 0


def _is_deletion(rows: Sequence[Row], oid: int, tid: int) -> bool:
    """Return whether the last revision up to ``tid`` of an object is a deletion. ``rows``: ascending."""
    return [data_id for of, serial, data_id, _ in rows if of == oid and serial <= tid][-1] is None
