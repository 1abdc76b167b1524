"""A backend on a simulated disk, whose loop is the world's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha1
from random import Random
from typing import Any

from neo.storage.backend.acknowledged import ROW
from neo.storage.backend.api import BackendFailure, Stored, TransactionMeta
from tests.simulator.disk import SimDisk
from tests.simulator.disk_check import Rows
from tests.simulator.world import World
from tests.unit.backend import (
    test_backend_commit,
    test_backend_contract,
    test_backend_maintenance,
    test_backend_pages,
    test_backend_voted,
)
from tests.unit.backend.harness import NP, UP, Harness, p64

SECONDS = 60.0
COLUMNS = {"id": 0, "hash": 1, "data_id": 3}
#: What only backends have that keep tables with SQL.
_SQL = {"engine", "values"}
_CONTRACT = (
    test_backend_contract,
    test_backend_commit,
    test_backend_maintenance,
    test_backend_pages,
    test_backend_voted,
)


def contract_tests() -> dict[str, object]:
    """The tests of the contract by name, but those that look into the tables with SQL."""
    return {
        name: test
        for module in _CONTRACT
        for name, test in vars(module).items()
        if name.startswith("test_") and _SQL.isdisjoint(test.__code__.co_names)
    }


class Process:
    """The host of one process: nothing of it happens once it is dead."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dead = False

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        def call() -> None:
            if not self.dead:
                callback(*args)

        return self.world.call_later(0.0, call, "thread")


class SimHarness(Harness):
    """For the tests of the contract."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__("simulated", disk.name)
        self.disk = disk
        self.process = Process(disk.world)

    def make(self, dedup: bool = False, wait: float = 0) -> Any:
        backend = self.disk.make_backend(self.process, self.failures.append, dedup)
        self.opened.append(backend)
        return backend

    def run_until(self, condition: Callable[[], object]) -> None:
        self.disk.world.run_until(lambda: bool(condition()), SECONDS, "the backend answers")

    def select(self, backend: Any, columns: str, table: str) -> Sequence[Sequence[Any]]:
        wanted = [COLUMNS[column] for column in columns.split(", ")]
        return [tuple(row[i] for i in wanted) for row in self.disk.tables()[table]]


def comparable(disk: SimDisk) -> Rows:
    """The tables of a disk without the row that changes whenever it is opened."""
    tables = disk.tables()
    return {**tables, "config": [row for row in tables["config"] if row[0] != ROW]}


class Storm:
    """Random transactions on a disk that crashes, fills up and fails at random moments.

    ``moments``: the tables after each operation since the disk was opened. What a crash leaves must
    be one of them, not older than the last that was acknowledged. With ``exact`` false (writes are
    executed later than asked) only transactions are looked at, not tables.
    """

    def __init__(self, disk: SimDisk, exact: bool = True) -> None:
        self.world = disk.world
        self.disk = disk
        self.exact = exact
        self.random = Random(disk.world.seed)
        self.tid = 100
        self.crashes = self.failures = self.lost = self.failed_opens = 0
        self._open()
        self.backend.tables.change_cells(1, 0, [(p, 1, UP) for p in range(NP)], 1, True)
        self.backend.tables.set_config("nid", "1")
        self._moment()

    def _open(self) -> None:
        self.process = Process(self.world)
        self.failed: list[BackendFailure] = []
        self.backend: Any = self.disk.open_backend(self.process, self.failed.append)
        self.voted = [int.from_bytes(t, "big") for t in self.backend.commits.locked_transactions()]
        self.moments = [self._now()]
        self.acknowledged = 0

    def _now(self) -> Rows:
        return comparable(self.disk) if self.exact else {"trans": [], "ttrans": []}

    def _moment(self) -> None:
        self.moments.append(self._now())

    # -- operations --------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self._step()
            except BackendFailure as failure:
                self.failed.append(failure)
            if self.failed:
                self._recover()
            elif self.random.random() < 0.03:
                self._crash()

    def _step(self) -> None:
        choice = self.random.random()
        if choice < 0.35:
            self._vote()
        elif choice < 0.55 and self.voted:
            self._finish(self.voted.pop(self.random.randrange(len(self.voted))))
        elif choice < 0.6 and self.voted:
            self.backend.commits.abort(p64(self.voted.pop()))
        elif choice < 0.63:
            self.backend.maintenance.pack(p64(self.tid - 30), self.random.randrange(NP), p64(0), 100)
        elif choice < 0.67:
            self.disk.full = self.random.random() < 0.3
            self.disk.failing = self.random.random() < 0.3
            return
        elif choice < 0.85:
            self._ask_stored()
            return
        else:
            self.world.run(self.random.choice([0.0005, 0.003, 0.03]))
            return
        self._moment()

    def _vote(self) -> None:
        self.tid += NP
        oids = self.random.sample(range(8), self.random.randint(1, 4))
        stored = []
        for oid in oids:
            data = b"%d in %d " % (oid, self.tid) * self.random.choice([1, 10, 300])
            data_id = self.backend.values.store_data(p64(oid), 0, sha1(data).digest(), data)
            stored.append(Stored(p64(oid), data_id, None))
        meta = TransactionMeta(b"user", b"", b"", [p64(oid) for oid in oids])
        self.backend.commits.vote(p64(self.tid), meta, stored)
        self.voted.append(self.tid)

    def _finish(self, ttid: int) -> None:
        self.tid += NP
        self.backend.commits.lock(p64(ttid), p64(self.tid))
        self._moment()
        if self.random.random() < 0.8:
            self.backend.commits.unlock(p64(ttid), p64(self.tid))
        else:
            self.voted.append(ttid)

    def _ask_stored(self) -> None:
        number = len(self.moments) - 1

        def done() -> None:
            assert number >= self.acknowledged, "answered out of order"
            self.acknowledged = number

        self.backend.engine.stored(done)

    # -- ends --------------------------------------------------------------------------------------

    def _crash(self) -> None:
        self.crashes += 1
        self.process.dead = True
        self.disk.crash()
        self._check(comparable(self.disk))
        self._reopen()

    def _recover(self) -> None:
        """As a node does: close, try to open until it works."""
        self.failures += 1
        try:
            self.backend.close()
        except BackendFailure as failure:
            self.failed.append(failure)
        self.process.dead = True
        self._check(comparable(self.disk))
        self._reopen()

    def _reopen(self) -> None:
        found = comparable(self.disk)
        while True:
            try:
                self._open()
            except BackendFailure:
                self.failed_opens += 1
                self.world.run(1.0)
                self.disk.heal()
            else:
                break
        if self.exact:
            assert self.moments == [found]

    def _check(self, found: Rows) -> None:
        self.disk.check(quiet=False)
        if not self.exact:
            return
        assert found in self.moments[self.acknowledged :], "lost, or half there"
        self.lost += found != self.moments[-1]

    def finish(self) -> Rows:
        """End of the storm: everything that is in progress is aborted, nothing may be left."""
        self.disk.heal()
        if self.failed:
            self._recover()
        self.backend.maintenance.prune_orphans(False, 0, 10**6)
        self.backend.commits.drop_unfinished()
        self.backend.close()
        self.disk.check()
        return self.disk.tables()
