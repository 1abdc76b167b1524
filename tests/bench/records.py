"""Records of a realistic shape, and a database to import."""

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from sys import modules
from typing import Any

from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.DB import DB
from ZODB.FileStorage import FileStorage
from ZODB.utils import z64

from tests.bench.sizes import Limit

SIZE = 300  # bytes of a record, where a figure names no other size

_CLASS = pickle.dumps((PersistentMapping, None), protocol=3)
_TEXT = b"A record of a ZODB application compresses, but not down to nothing. " * 64
_FRAME = len(_CLASS) + len(pickle.dumps({"data": {"body": b"x" * 256}}, protocol=3)) - 256


def record(rng: random.Random, size: int = SIZE) -> bytes:
    """Return a pickled PersistentMapping of about `size` bytes: half of it random, half of it text."""
    length = max(size - _FRAME, 2)
    text = length // 2
    body = rng.randbytes(length - text) + (_TEXT * (text // len(_TEXT) + 1))[:text]
    return _CLASS + pickle.dumps({"data": {"body": body}}, protocol=3)


def make_source(path: Path, transactions: int) -> None:
    """Write a Data.fs of `transactions` transactions of one object each; run in a forked client. Each
    object gets about ten revisions. The file is not synced, because it is not needed after a crash."""
    vars(modules[FileStorage.__module__])["fsync"] = None
    rng = random.Random(transactions)
    storage = FileStorage(str(path))
    database = DB(storage)  # makes the root object: the first transaction
    oids = [storage.new_oid() for _ in range(max(transactions // 10, 1))]
    serials: dict[bytes, bytes] = {}
    for number in range(transactions - 1):
        oid = oids[number % len(oids)]
        meta = TransactionMetaData("bench", f"transaction {number}")
        storage.tpc_begin(meta)
        storage.store(oid, serials.get(oid, z64), record(rng), "", meta)
        storage.tpc_vote(meta)
        serials[oid] = storage.tpc_finish(meta)
    database.close()


class Source:
    """The Data.fs to import, for copyTransactionsFrom; it ends when the limit is over."""

    def __init__(self, path: Path, transactions: int, limit: Limit) -> None:
        self._storage = FileStorage(str(path), read_only=True)
        self._transactions = transactions
        self._limit = limit
        self.copied = 0

    def iterator(self, start: bytes | None = None, stop: bytes | None = None) -> "_Transactions":
        return _Transactions(self, self._storage.iterator(start, stop))

    def __len__(self) -> int:
        return self._transactions

    def close(self) -> None:
        self._storage.close()

    def bounded(self, transactions: Iterator[Any]) -> Iterator[Any]:
        for transaction in transactions:
            if self._limit.over():
                return
            yield transaction
            self.copied += 1


class _Transactions:
    """An iterator with a length. RelStorage would first read an iterator without one to its end."""

    def __init__(self, source: Source, transactions: Iterator[Any]) -> None:
        self._length = len(source)
        self._bounded = source.bounded(transactions)

    def __iter__(self) -> Iterator[Any]:
        return self._bounded

    def __len__(self) -> int:
        return self._length
