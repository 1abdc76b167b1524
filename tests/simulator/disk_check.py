"""Oracle: the tables of a storage node are consistent (specification 14).

Rows are those of ``schema/sqlite.sql`` for all kinds of disks. A cell that is out of date may lack any
rows, so that only readable cells must be complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import sha1
from typing import Any

from neo.protocol.blobs import MAGIC, REFERENCE_BYTES, content_of
from neo.protocol.enums import CellState
from tests.simulator.world import Violation

#: Rows of each table by its name, sorted by primary key (``ttrans`` by ttid, ``tobj`` by ttid, oid).
Rows = dict[str, list[tuple[Any, ...]]]

_READABLE = (-CellState.UP_TO_DATE.value, -CellState.FEEDING.value)


def orphans(tables: Rows) -> set[int]:
    """Return the ids of data to which no row refers."""
    ids = {row[0] for row in tables["data"]}
    return ids.difference(row[3] for table in ("obj", "tobj") for row in tables[table])


def contents(tables: Rows) -> set[str]:
    """Return the names of the contents to which committed and voted records refer."""
    if not any(row[3][-REFERENCE_BYTES:].startswith(MAGIC) for row in tables["data"]):
        return set()
    used = {row[3] for table in ("obj", "tobj") for row in tables[table]}
    found = (content_of(row[3]) for row in tables["data"] if row[0] in used and not row[2])
    return {content.checksum.hex() for content in found if content is not None}


def check_tables(
    name: str, tables: Rows, quiet: bool = False, allowed_orphans: Collection[int] = ()
) -> None:
    """Raise Violation if the tables are inconsistent. ``quiet``: no transaction is in progress in the
    cluster. ``allowed_orphans``: data that a crash left behind, which only a repair deletes."""
    for problem in _problems(tables):
        raise Violation(f"{name}: {problem}")
    if not quiet:
        return
    for table in ("ttrans", "tobj", "prepared", "prepared_check"):
        if tables[table]:
            raise Violation(f"{name}: {table} has rows left: {tables[table][:3]}")
    left = orphans(tables).difference(allowed_orphans)
    if left:
        raise Violation(f"{name}: nothing refers to data {sorted(left)[:5]}")


def _problems(tables: Rows) -> Iterator[str]:
    modulo = 1 + max((row[0] for row in tables["pt"]), default=0)
    config: dict[str, str] = dict(tables["config"])
    nid = int(config.get("nid") or 0)
    readable = {p for p, owner, tid in tables["pt"] if owner == nid and tid in _READABLE}
    packed = int(config.get("_pack_tid") or 0)
    yield from _data_problems(tables)
    yield from _object_problems(tables, modulo, readable, packed)
    yield from _transaction_problems(tables, modulo, readable, packed)


def _data_problems(tables: Rows) -> Iterator[str]:
    for data_id, checksum, _, value in tables["data"]:
        if sha1(value).digest() != checksum:
            yield f"data {data_id:#x} does not match its checksum"
    ids = {row[0] for row in tables["data"]}
    yield from _content_problems(tables)
    for table in ("obj", "tobj"):
        for _, oid, tid, data_id, _ in tables[table]:
            if data_id is not None and data_id not in ids:
                yield f"{table} {oid:016x} at {tid:016x}: data {data_id:#x} is missing"


def _content_problems(tables: Rows) -> Iterator[str]:
    rows = {row[0]: row[1:] for row in tables["content"]}
    for data_id, _, compression, value in tables["data"]:
        content = None if compression else content_of(value)
        right = None if content is None else (content.checksum, content.size)
        if rows.get(data_id) != right:
            yield f"data {data_id:#x} refers to {right}, and content has {rows.get(data_id)}"


def _object_problems(tables: Rows, modulo: int, readable: set[int], packed: int) -> Iterator[str]:
    known = {(row[1], row[2]): row[3] for row in tables["obj"]}
    contents = {row[0]: (row[1], row[2]) for row in tables["data"]}
    transactions = {row[1] for row in tables["trans"]}
    for partition, oid, tid, data_id, value_tid in tables["obj"]:
        where = f"obj {oid:016x} at {tid:016x}"
        if partition != oid % modulo:
            yield f"{where}: partition {partition}"
        if tid > packed and tid % modulo in readable and tid not in transactions:
            yield f"{where}: its transaction is not in trans"
        if value_tid is None:
            continue
        if value_tid >= tid:
            yield f"{where}: has the value of {value_tid:016x}, which is not older"
        if partition not in readable:
            continue
        if (oid, value_tid) not in known:
            if value_tid > packed:
                yield f"{where}: has the value of {value_tid:016x}, which is not there"
        elif contents.get(known[oid, value_tid]) != contents.get(data_id):
            yield f"{where}: has not the value of {value_tid:016x}"


def _transaction_problems(
    tables: Rows, modulo: int, readable: set[int], packed: int
) -> Iterator[str]:
    known = {(row[1], row[2]) for row in tables["obj"]}
    for partition, tid, _, oids, _, _, _, ttid in tables["trans"]:
        where = f"trans {tid:016x}"
        if partition != tid % modulo:
            yield f"{where}: partition {partition}"
        if ttid > tid:
            yield f"{where}: its ttid {ttid:016x} is later"
        if tid <= packed:
            continue
        for i in range(0, len(oids), 8):
            oid = int.from_bytes(oids[i : i + 8], "big")
            if oid % modulo in readable and (oid, tid) not in known:
                yield f"{where}: object {oid:016x} is listed and missing"
    marked = {row[0] for row in tables["prepared"]}
    for ttid, oid, _ in tables["prepared_check"]:
        if ttid not in marked:
            yield f"prepared_check {ttid:016x}: object {oid:016x} of a transaction without a mark"
    begun = {row[7] for row in tables["ttrans"]}
    if len(begun) != len(tables["ttrans"]):
        yield "ttrans has a transaction twice"
