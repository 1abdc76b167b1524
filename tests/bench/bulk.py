"""Fill the databases of a cluster that does not run, with the rows that commits would have written.

Through a client an object takes 80 µs of two processors, even in large transactions. Here each storage
node has a process that calls what its commits call: the backend's stores, votes and unlocks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from neo.client.read.records import pack_data
from neo.client.settings import COMPRESS_LEVEL
from neo.protocol.ids import p64
from neo.storage.backend.api import BackendFailure, Stored, TransactionMeta
from neo.storage.backend.factory import make_backend
from tests.bench import clients
from tests.bench.clients import ClientFailed, Ready
from tests.bench.records import record

#: Objects of a transaction.
BATCH = 20_000
#: Different records. To make each one would take longer than to store it, and no record is compared with
#: others unless a node has the setting ``dedup``.
RECORDS = 1_000
#: For one sync of a database.
SYNC_SECONDS = 600.0


def load(databases: Sequence[Path], tid: int, first: int, count: int, seconds: float) -> None:
    """Store ``count`` new objects from oid ``first`` on, in transactions after ``tid``. ``databases``: of
    all storage nodes, which have one copy of each partition together. Raise ClientFailed."""

    def work(index: int, ready: Ready) -> None:
        ready()
        _Loader(databases[index]).load(tid, first, count)

    clients.run_many(len(databases), work, seconds)


class _Loader:
    """Writes what one node has of the transactions."""

    def __init__(self, database: Path) -> None:
        self._callbacks: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = SimpleQueue()
        self._failures: list[BackendFailure] = []
        self._backend = make_backend(
            "SQLite", str(database), None, self._schedule, self._failures.append
        )
        rng = random.Random(RECORDS)
        self._packed = [pack_data(b"", record(rng), COMPRESS_LEVEL) for _ in range(RECORDS)]

    def _schedule(self, callback: Callable[..., None], *args: object) -> None:
        self._callbacks.put((callback, args))

    def load(self, tid: int, first: int, count: int) -> None:
        backend = self._backend
        backend.open()
        tables = backend.tables
        nid = int(tables.get_config("nid") or 0)
        own = {cell.partition for cell in tables.cells() if cell.nid == nid}
        end = first + count
        for start in range(first, end, BATCH):
            tid += 1
            oids = range(start, min(start + BATCH, end))
            self._commit(tid, [oid for oid in oids if oid % tables.modulo in own], oids, own)
            self._wait()
        backend.close()

    def _commit(
        self, tid: int, stored: Sequence[int], oids: Sequence[int], own: set[int]
    ) -> None:
        """Vote and unlock one transaction; its ttid is its tid."""
        backend, ttid = self._backend, p64(tid)
        changes = []
        for number in stored:
            oid, packed = p64(number), self._packed[number % RECORDS]
            changes.append(Stored(oid, backend.values.store_data(oid, *packed), None))
        meta = None
        if tid % backend.tables.modulo in own:
            meta = TransactionMeta(b"bench", b"commit", b"", list(map(p64, oids)))
        backend.commits.vote(ttid, meta, changes)
        backend.commits.unlock(ttid, ttid)

    def _wait(self) -> None:
        """Wait until all is durable. Raise ClientFailed."""
        done: list[bool] = []
        self._backend.engine.stored(lambda: done.append(True))
        while not done:
            try:
                callback, args = self._callbacks.get(timeout=SYNC_SECONDS)
            except Empty:
                raise ClientFailed(f"no sync within {SYNC_SECONDS:.0f} s") from None
            callback(*args)
            if self._failures:
                raise ClientFailed(str(self._failures[0]))
