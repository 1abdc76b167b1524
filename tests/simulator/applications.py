"""The applications of a run: client processes with ZODB, whose threads execute the workloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ZODB.Connection import TransactionMetaData
from ZODB.DB import DB
from ZODB.POSException import POSError
from ZODB.tests.MinPO import MinPO
from ZODB.tests.StorageTestBase import zodb_pickle
from ZODB.utils import z64

from neo.client.storage import NEOStorage
from tests.simulator.clients import ClientProcess
from tests.simulator.recorded import Recorded
from tests.simulator.threads import Interrupted, SimThread
from tests.simulator.workloads.base import EXPECTED, Context, Workload, close

if TYPE_CHECKING:
    from tests.simulator.run import Run

#: The thread that commits when progress is checked, independent of the workloads.
PROBE = "progress"


class Application:
    """A client process that runs some of the workloads' threads."""

    def __init__(self, run: Run, jobs: list[tuple[Workload, int]], place: int) -> None:
        """``place``: the number of this process among those that run at the same time."""
        self.run = run
        self._blob_dir = run.blob_dirs.choose(place) if run.with_blobs else None
        self.jobs = jobs
        self.process: ClientProcess = run.cluster.client()
        self.random = Random(run.world.random.getrandbits(64))
        self.ready = False
        #: Number of steps that each thread completed without an error.
        self.done = [0] * len(jobs)
        #: Number of commits that were acknowledged before progress was demanded.
        self._before: Counter[str] = Counter()
        #: Called once, after the next vote of a thread.
        self.at_vote: Callable[[], None] | None = None
        #: Threads that may be interrupted during a step.
        self.workers: list[SimThread] = []
        self._db: DB | None = None
        self.process.spawn(self._open, "open")

    def _log(self, what: str) -> None:
        current = self.run.cluster.threads.current
        who = current.name if current else self.process.name
        self.run.world.log(who, self.run.blob_dirs.hide(what))

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
        """Retry ``action`` until it succeeds."""
        while True:
            try:
                return action()
            except EXPECTED as e:
                self._log(f"{type(e).__name__}: {e}")
                self._pause()

    def open(self) -> DB:
        """Open another database, in a thread of this process."""
        settings = self.run.settings
        settings = settings | self.run.cache_dirs.settings(settings["cache_size"])
        if self._blob_dir is not None:
            settings = settings | {"blob_dir": self._blob_dir}
        storage = self.run.cluster.storage(self.process, **settings)
        try:
            return DB(Recorded(storage, self.run.history, self._name, self._voted, self.process.sweep))
        except BaseException:
            storage.close()
            raise

    def _voted(self) -> None:
        at_vote, self.at_vote = self.at_vote, None
        if at_vote is not None:
            self._log("has voted")
            at_vote()
            self._sleep(0.0)

    def _context(self, random: Random) -> Context:
        assert self._db is not None
        host = self._log, self.open, self.process.spawn, self._sleep
        return Context(self._db, random, *host, self.run.blob_dirs.new_file)

    def _open(self) -> None:
        self._db = self._persist(self.open)
        context = self._context(self.random)
        for workload in self.run.workloads:
            self._persist(partial(workload.setup, context))
        self.ready = True
        for index, (workload, number) in enumerate(self.jobs):
            work = self._worker(index, workload, number)
            self.workers.append(self.process.spawn(work, _thread(workload, number)))

    def _worker(self, index: int, workload: Workload, number: int) -> Callable[[], None]:
        context = self._context(Random(self.random.getrandbits(64)))

        def work() -> None:
            while not self.run.ending:
                try:
                    workload.step(context, number)
                    self.done[index] += 1
                except EXPECTED as e:
                    self._log(f"{type(e).__name__}: {e}")
                    self.run.interrupts.failed(e)
                except Interrupted:
                    pass  # the same as any other failed call
                self.workers[index].interrupts.clear()
                self._pause()

        return work

    @property
    def storage(self) -> NEOStorage | None:
        """Return the client's storage without the recorder around it; None until it is open."""
        return None if self._db is None else self._db.storage.unrecorded

    # -- progress ----------------------------------------------------------------------------------

    def demand_progress(self) -> None:
        """Start to count steps of threads, and commits of workloads and of this process."""
        self.done = [0] * len(self.jobs)
        self._before = self.run.history.commits.copy()
        self.process.spawn(self._probe, PROBE)

    @property
    def works(self) -> bool:
        """Return whether every thread has completed a step since, and the process a commit."""
        return all(self.done) and self._commits(PROBE)

    def writing(self) -> dict[str, bool]:
        """Return, for each workload with writers here, whether a commit of one of them succeeded since.

        One writer is enough: a slow one may lose every conflict with the others as long as these go on.
        """
        found: dict[str, bool] = {}
        for workload, number in self.jobs:
            if workload.writes(number):
                commits = self._commits(_thread(workload, number))
                found[workload.name] = commits or found.get(workload.name, False)
        return found

    def _commits(self, thread: str) -> bool:
        name = f"{self.process.name}/{thread}"
        return self.run.history.commits[name] > self._before[name]

    def _probe(self) -> None:
        while not self.ready:
            self._pause()
        self._persist(self._commit)

    def _commit(self) -> None:
        """Commit a small transaction that cannot conflict with any other."""
        assert self._db is not None
        storage: Any = self._db.storage
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        try:
            storage.store(storage.new_oid(), z64, zodb_pickle(MinPO(0)), "", transaction)
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
        except POSError:
            storage.tpc_abort(transaction)
            raise

    def check(self) -> None:
        """Run the final checks of the workloads, then close."""

        def check() -> None:
            assert self._db is not None
            context = self._context(self.random)
            # A client that lost the master and was not used since sees an old snapshot.
            self._persist(self._db.storage.sync)
            for workload in self.run.workloads:
                self._persist(partial(workload.check, context))
            close(self._db)

        self.process.spawn(check, "check")


def _thread(workload: Workload, number: int) -> str:
    return f"{workload.name}{number}"
