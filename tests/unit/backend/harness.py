"""A backend with its loop: callbacks are queued and run by the test's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha1
from queue import Empty, SimpleQueue
from typing import Any

from neo.protocol.enums import CellState
from neo.storage.backend.api import Backend, BackendFailure, Done, Stored, TransactionMeta
from neo.storage.backend.factory import make_backend

UP = CellState.UP_TO_DATE
NP = 3
SECONDS = 60


def p64(number: int) -> bytes:
    return number.to_bytes(8, "big")


class Harness:
    """``make(**options)`` gives a new backend on the same database."""

    def __init__(self, adapter: str, database: str) -> None:
        self.adapter = adapter
        self.database = database
        #: The setting of MariaDB.
        self.mark: str | None = None
        self.failures: list[BackendFailure] = []
        self.callbacks: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = SimpleQueue()
        self.opened: list[Backend] = []

    def schedule(self, callback: Callable[..., None], *args: object) -> None:
        self.callbacks.put((callback, args))

    def make(self, dedup: bool = False) -> Any:
        backend = make_backend(
            self.adapter,
            self.database,
            None,
            self.schedule,
            self.failures.append,
            dedup,
            mark=self.mark,
        )
        self.opened.append(backend)
        return backend

    def open(self, dedup: bool = False, reset: bool = False) -> Any:
        backend = self.make(dedup)
        backend.open(reset)
        return backend

    def ready(self, partitions: int = NP, dedup: bool = False) -> Any:
        """A new database with a partition table where node 1 has everything."""
        backend = self.open(dedup, reset=True)
        backend.tables.change_cells(1, 0, [(p, 1, UP) for p in range(partitions)], 1, True)
        return backend

    def restart(self, backend: Any, dedup: bool = False) -> Any:
        """Another process opens the database when all is durable."""
        self.wait(backend.engine.stored)
        self.close()
        return self.open(dedup)

    def close(self) -> None:
        for backend in self.opened:
            backend.close()
        self.opened.clear()

    # -- the loop -------------------------------------------------------------------------------

    def run_until(self, condition: Callable[[], object]) -> None:
        """Run callbacks as they come until the condition holds."""
        while not condition():
            try:
                callback, args = self.callbacks.get(timeout=SECONDS)
            except Empty:
                raise AssertionError("nothing happened in time") from None
            callback(*args)

    def wait(self, ask: Callable[[Done], None]) -> None:
        """Run the loop until ``backend.engine.stored`` or ``backend.engine.executed`` is done."""
        done: list[bool] = []
        ask(lambda: done.append(True))
        assert not done, "called inside the call"
        self.run_until(lambda: done or self.failures)
        assert not self.failures, self.failures

    def failure(self, backend: Any) -> BackendFailure:
        """Run the loop until the backend fails, which must not acknowledge anything then."""
        acknowledged: list[bool] = []
        backend.engine.stored(lambda: acknowledged.append(True))
        self.run_until(lambda: self.failures)
        assert not acknowledged
        return self.failures[0]

    # -- transactions ---------------------------------------------------------------------------

    def vote(
        self, backend: Any, ttid: int, objects: dict[int, bytes | int | None], meta: bool = True
    ) -> list[Stored]:
        """``objects``: {oid: data, or the serial to go back to, or None (creation undone)}."""
        stored = []
        for oid, value in objects.items():
            stored.append(self.store(backend, oid, value))
        oids = [p64(oid) for oid in objects]
        backend.commits.vote(
            p64(ttid), TransactionMeta(b"user", b"text", b"ext", oids) if meta else None, stored
        )
        return stored

    def store(self, backend: Any, oid: int, value: bytes | int | None) -> Stored:
        if isinstance(value, bytes):
            return Stored(p64(oid), self.store_data(backend, oid, value), None)
        if value is None:
            return Stored(p64(oid), None, None)
        found = backend.reads.value_at(p64(oid), p64(value))
        assert found is not None
        return Stored(p64(oid), found[0], p64(value) if found[0] is not None else None)

    def store_data(self, backend: Any, oid: int, data: bytes, compression: int = 0) -> int:
        data_id: int = backend.values.store_data(p64(oid), compression, sha1(data).digest(), data)
        return data_id

    def commit(self, backend: Any, tid: int, objects: dict[int, bytes | int | None]) -> None:
        """A whole transaction with ttid = tid, visible afterwards, not durable yet."""
        self.vote(backend, tid, objects)
        backend.commits.lock(p64(tid), p64(tid))
        self.unlock(backend, tid, tid)

    def unlock(self, backend: Any, ttid: int, tid: int) -> None:
        """Commit what has voted, and wait until it is visible."""
        backend.commits.unlock(p64(ttid), p64(tid))
        self.wait(backend.engine.executed)

    def limit_values(self, backend: Any, value_max: int) -> None:
        getattr(backend, "engine", backend).value_max = value_max

    def data_rows(self, backend: Any) -> int:
        backend.engine.drain()
        return len(self.select(backend, "id", "data"))

    def select(self, backend: Any, columns: str, table: str) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = backend.engine.read(f"SELECT {columns} FROM {table}")
        return rows


def harness(adapter: str, database: str) -> Iterator[Harness]:
    made = Harness(adapter, database)
    yield made
    made.close()


def serials(backend: Any, oid: int) -> Sequence[int]:
    """Serials of an object, newest first."""
    return [int.from_bytes(serial, "big") for serial, _ in backend.reads.history(p64(oid), 0, 1000)]
