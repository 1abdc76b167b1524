"""Damage the file of a FileStorage, and compute what a copy of the damaged file may lack.

ZODB's own iterator gives the layout of the undamaged file.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import transaction
from persistent.mapping import PersistentMapping
from ZODB import DB
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.format import DATA_HDR_LEN, TRANS_HDR_LEN, FileStorageFormatter
from ZODB.utils import p64, z64

KINDS = (
    *("flip", "header flip", "byte", "zeros", "noise", "cut", "cut in the last"),
    *("append noise", "append zeros", "append a part", "index flip", "index cut"),
)


def make(path: Path) -> None:
    """Make a small database with everything that a file can have. It has packed, undone and empty
    transactions, undone creations, big and small records."""
    with closing(FileStorage(str(path))) as storage:
        db = DB(storage)
        for number in range(12):
            _change(db, number, 30 * number)
        _undo(db, 3)
        db.pack()
        for number in range(12, 30):
            _change(db, number, 9000 if number == 20 else 20 * number)
        _undo(db, 4)
        for records in ([], [b"."]):
            meta = TransactionMetaData()
            storage.tpc_begin(meta)
            for data in records:
                storage.store(p64(1000), z64, data, "", meta)
            storage.tpc_vote(meta)
            storage.tpc_finish(meta)
        for number in range(30, 36):
            _change(db, number, 10)
        db.close()


def _change(db: Any, number: int, size: int) -> None:
    with db.transaction(f"change {number}") as connection:
        root = connection.root()
        root[number] = PersistentMapping(number=number)
        root[number // 2 * 2]["text"] = "x" * size


def _undo(db: Any, count: int) -> None:
    for _ in range(count):
        db.undo(db.undoInfo(0, 1)[0]["id"], transaction.get())
        transaction.commit()


class Row(NamedTuple):
    """A data record: its position, those of records to which it points (0: none), its fields."""

    position: int
    previous: int
    back: int
    oid: bytes
    data: bytes | None


class Whole(NamedTuple):
    """A transaction, and the bytes that it occupies."""

    tid: bytes
    start: int
    end: int
    texts: tuple[bytes, bytes, bytes]
    rows: list[Row]


def layout(path: Path) -> list[Whole]:
    """Return all transactions of an undamaged file."""
    found = []
    formatter = FileStorageFormatter()
    with closing(FileStorage(str(path), read_only=True)) as storage, path.open("rb") as file:
        formatter._file = file
        for each in storage.iterator():
            rows = []
            for row in each:
                header = formatter._read_data_header(row.pos)
                rows.append(Row(row.pos, header.prev, header.back, row.oid, row.data))
            texts = each.user, each.description, each.extension_bytes
            found.append(Whole(each.tid, each._tpos, each._tend + 8, texts, rows))
    return found


class Damaged(NamedTuple):
    """A damage: bytes ``start`` to ``end`` of the data file were changed, cut off or added. If both are
    0, the data file is not damaged."""

    kind: str
    start: int
    end: int
    #: Positions in the undamaged file whose bytes have another value now.
    changed: frozenset[int] = frozenset()


def damage(random: Random, kind: str, path: Path, whole: list[Whole]) -> Damaged:
    """Damage a data file or its index. Return the place."""
    if kind.startswith("index"):
        name = Path(f"{path}.index")
        data = bytearray(name.read_bytes())
        if kind == "index cut":
            del data[random.randrange(len(data)) :]
        else:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        name.write_bytes(data)
        return Damaged(kind, 0, 0)
    before = path.read_bytes()
    data = bytearray(before)
    size = len(data)
    start = random.randrange(size)
    end = start + 1
    if kind == "header flip":
        start = _header_byte(random, whole)
        end = start + 1
    if kind.endswith("flip"):
        data[start] ^= 1 << random.randrange(8)
    elif kind == "byte":
        data[start] ^= random.randrange(1, 256)
    elif kind in ("zeros", "noise"):
        end = min(size, start + random.choice((8, 64, 512, 4096)))
        block = bytes(end - start) if kind == "zeros" else random.randbytes(end - start)
        data[start:end] = block
    elif kind.startswith("cut"):
        start = random.randrange(whole[-1].start, size) if "last" in kind else start
        end = size
        del data[start:]
    else:
        length = random.choice((1, 20, 300, 5000))
        part = {
            "append noise": random.randbytes(length),
            "append zeros": bytes(length),
            "append a part": bytes(data[start : start + length]),
        }[kind]
        start, end = size, size + len(part)
        data += part
    path.write_bytes(data)
    both = enumerate(zip(before, data, strict=False))
    return Damaged(kind, start, end, frozenset(n for n, (one, two) in both if one != two))


def _header_byte(random: Random, whole: list[Whole]) -> int:
    chosen = random.choice(whole)
    places = [
        *range(chosen.start, chosen.start + TRANS_HDR_LEN),
        *range(chosen.end - 8, chosen.end),
    ]
    for row in chosen.rows:
        places += range(row.position, row.position + DATA_HDR_LEN + (0 if row.data else 8))
    return random.choice(places)


def touched(whole: list[Whole], done: Damaged) -> set[bytes]:
    """Return the tids of the transactions with changed bytes."""
    return {each.tid for each in whole if each.start < done.end and done.start < each.end}


def lost_data(whole: list[Whole], lost: set[bytes]) -> set[bytes]:
    """Return the tids of lost transactions, and of those whose data was in them."""
    lost = set(lost)
    owner = {row.position: each.tid for each in whole for row in each.rows}
    for each in whole:
        if any(owner.get(row.back) in lost for row in each.rows):
            lost.add(each.tid)
    return lost


def may_lack(whole: list[Whole], done: Damaged) -> set[bytes]:
    """Return the tids of the transactions that a salvaged copy may leave out.

    These are transactions with changed bytes, those of both revisions when the oid of one of them was
    changed, and those whose data was in one of these.
    """
    lost = touched(whole, done)
    owner = {row.position: each.tid for each in whole for row in each.rows}
    for each in whole:
        for row in each.rows:
            if _hits(done, row.position, 8) and row.previous:
                lost.add(owner[row.previous])
            if row.previous and _hits(done, row.previous, 8):
                lost.add(each.tid)
    return lost_data(whole, lost)


def is_seen(whole: list[Whole], done: Damaged, indexed: bool) -> bool:
    """Return whether the damage can be seen at all: a FileStorage has no checksums.

    It cannot be seen inside data, texts, marks of packed transactions, or oids that nothing else names.
    Without an index, a cut between two transactions cannot be seen. Pointers to previous revisions are
    not copied: those that are zero afterwards are not seen. A record whose pointer to data becomes zero
    says that the object does not exist, as that of a deleted object does.
    """
    if done.kind.startswith("index"):
        return False
    if done.kind.startswith("cut"):
        return indexed or done.start not in {each.end for each in whole} | {4}
    if done.start >= whole[-1].end:
        return True
    silent: set[int] = set()
    pointed = {row.previous for each in whole for row in each.rows}
    for each in whole:
        texts = each.start + TRANS_HDR_LEN
        silent.update(range(texts, texts + sum(map(len, each.texts))))
        silent.add(each.start + 16)
        for row in each.rows:
            silent.update(range(row.position + 16, row.position + 24))
            begin = row.position + DATA_HDR_LEN
            if not row.back and row.data is not None:
                silent.update(range(begin, begin + len(row.data)))
            pointer = {begin + n for n, byte in enumerate(p64(row.back)) if byte}
            if done.kind == "zeros" and row.back and pointer <= done.changed:
                silent.update(range(begin, begin + 8))
            if not indexed and not row.previous and row.position not in pointed:
                silent.update(range(row.position, row.position + 8))
        if not each.rows:
            silent.update(range(each.start, each.start + 8))
    return not silent.issuperset(done.changed)


def is_unknown_oid(whole: list[Whole], done: Damaged) -> bool:
    """Return whether changed oids may contradict only the index, or nothing."""
    return any(
        _hits(done, row.position, 8) and not row.previous for each in whole for row in each.rows
    )


def _hits(done: Damaged, start: int, size: int) -> bool:
    return start < done.end and done.start < start + size


def contents(storage: Any) -> dict[bytes, Any]:
    """Return, by tid, the texts and the data by oid."""
    return {
        each.tid: (
            (each.user, each.description, each.extension_bytes),
            {row.oid: row.data for row in each},
        )
        for each in storage.iterator()
    }


def originals(whole: Iterable[Whole]) -> dict[bytes, Any]:
    """Return the same as contents(), for the undamaged file."""
    return {each.tid: (each.texts, {row.oid: row.data for row in each.rows}) for each in whole}
