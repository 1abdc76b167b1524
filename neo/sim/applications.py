"""The applications of a run: client processes with ZODB, whose threads are at work on the workloads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ZODB.DB import DB

from neo.sim.clients import ClientProcess
from neo.sim.recorded import Recorded
from neo.sim.workloads.base import EXPECTED, Context, Workload

if TYPE_CHECKING:
    from neo.sim.run import Run


class Application:
    """A client process that runs some threads of the workloads."""

    def __init__(self, run: Run, jobs: list[tuple[Workload, int]]) -> None:
        self.run = run
        self.jobs = jobs
        self.process: ClientProcess = run.cluster.client()
        self.random = Random(run.world.random.getrandbits(64))
        self.ready = False
        #: Steps that each thread did without an error.
        self.done = [0] * len(jobs)
        self._db: DB | None = None
        self.process.spawn(self._open, "open")

    def _log(self, what: str) -> None:
        current = self.run.cluster.threads.current
        self.run.world.log(current.name if current else self.process.name, what)

    def _name(self) -> str:
        current = self.run.cluster.threads.current
        return current.name if current else self.process.name

    def _sleep(self, seconds: float) -> None:
        current = self.run.cluster.threads.current
        assert current is not None
        current.sleep(seconds)

    def _pause(self) -> None:
        self._sleep(self.random.random() * self.run.think_seconds)

    def _persist(self, action: Callable[[], Any]) -> Any:
        """Try until it works."""
        while True:
            try:
                return action()
            except EXPECTED as e:
                self._log(f"{type(e).__name__}: {e}")
                self._pause()

    def open(self) -> DB:
        """A database of its own, in a thread of this process."""
        storage = self.run.cluster.storage(self.process, **self.run.settings)
        try:
            return DB(Recorded(storage, self.run.history, self._name))
        except EXPECTED:
            storage.close()
            raise

    def _context(self, random: Random) -> Context:
        assert self._db is not None
        return Context(self._db, random, self._log, self.open, self.process.spawn, self._sleep)

    def _open(self) -> None:
        self._db = self._persist(self.open)
        context = self._context(self.random)
        for workload in self.run.workloads:
            self._persist(partial(workload.setup, context))
        self.ready = True
        for index, (workload, number) in enumerate(self.jobs):
            self.process.spawn(self._worker(index, workload, number), f"{workload.name}{number}")

    def _worker(self, index: int, workload: Workload, number: int) -> Callable[[], None]:
        context = self._context(Random(self.random.getrandbits(64)))

        def work() -> None:
            while not self.run.ending:
                try:
                    workload.step(context, number)
                    self.done[index] += 1
                except EXPECTED as e:
                    self._log(f"{type(e).__name__}: {e}")
                self._pause()

        return work

    def check(self) -> None:
        """Run the workloads' final checks, then close."""

        def check() -> None:
            assert self._db is not None
            context = self._context(self.random)
            # A client that lost the master and was not used since would see an old snapshot.
            self._persist(self._db.storage.sync)
            for workload in self.run.workloads:
                self._persist(partial(workload.check, context))
            self._db.close()

        self.process.spawn(check, "check")
