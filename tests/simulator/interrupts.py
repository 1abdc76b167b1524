"""Exceptions from outside in the threads of applications: signals, time-outs of servers, Ctrl-C.

A thread is interrupted at a *point*: while it waits (for bytes, a lock, a waker, a connection, asleep),
in the middle of what it sends, and before and after each call of the client's host. Seldom, a second
exception follows while the thread handles the first one. For the application, that is a failed call.

Oracles: the call costs nobody else anything. No thread waits for ever (progress), no lock is left
(:mod:`tests.simulator.standing`), nothing stale is read (history), clients that do nothing hear of the
last transaction; and where nothing else fails, no call of a thread fails because a connection was lost.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from neo.client.errors import OutcomeUnknownError, TransactionLostError, UnavailableError
from tests.simulator.threads import SimThread
from tests.simulator.world import Violation

if TYPE_CHECKING:
    from tests.simulator.run import Run

#: The fault.
INTERRUPTED = "interrupted"
#: How many points a thread passes before it is interrupted, and before the second time, at most; half of
#: them pass a tenth of that, or less: most calls pass few.
FIRST_MAX = 300
SECOND_MAX = 30
SECOND_CHANCE = 0.25
#: An idle client hears of a transaction within this time, though each of some threads that were to read
#: for it was interrupted.
HEARD_SECONDS = 10.0


class Interrupts:
    def __init__(self, run: Run, random: Random) -> None:
        self._run = run
        self._random = random
        self.begun = False

    def act(self) -> None:
        """Interrupt a thread that is at work, or when it is next."""
        application = self._random.choice(self._run.applications)
        workers = [thread for thread in application.workers if not thread.finished]
        if workers:
            self.begun = True
            thread = self._random.choice(workers)
            points = [self._points(FIRST_MAX)]
            if self._random.random() < SECOND_CHANCE:
                points.append(self._points(SECOND_MAX))
            application.process.interrupt(thread, points)

    def _points(self, most: int) -> int:
        return int((most + 1) ** self._random.random()) - 1

    def stop(self) -> None:
        for thread in self._threads():
            thread.interrupts.clear()

    def _threads(self) -> list[SimThread]:
        return [t for application in self._run.applications for t in application.workers]

    # -- oracles ---------------------------------------------------------------------------------

    def failed(self, error: Exception) -> None:
        """A call failed that was not interrupted."""
        run = self._run
        lost = isinstance(error, TransactionLostError) and " lost" in str(error)
        lost = lost or isinstance(error, (OutcomeUnknownError, UnavailableError))
        # Visitors close theirs while they commit.
        lost = lost and "the storage is closed" not in str(error)
        if lost and self.begun and run.faults.calm and not run.sites.fired:
            run.world.fail(Violation(f"an interrupt of another thread cost a call: {error}"))

    def wait_heard(self) -> None:
        """When no thread works any more: clients hear of the last transaction, without asking."""
        if self.begun:
            self._run.world.run_until(
                self._heard, HEARD_SECONDS, "clients that do nothing hear of the last transaction"
            )

    def _heard(self) -> bool:
        """A client that lost its master does not join again before it is used."""
        for application in self._run.applications:
            storage = application.storage
            master = None if storage is None else storage.session._master
            if storage is not None and master is not None and master.lost is None:
                if storage.session.invalidations.last_tid < self._run.history.told_tid:
                    return False
        return True
