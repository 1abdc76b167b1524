"""Fault: exceptions from outside in the threads of applications: signals, timeouts of servers, Ctrl-C.

A thread is interrupted at a *point*: while it waits (for bytes, a lock, a waker, a connection, asleep),
in the middle of a send, and before and after each call of the client's host. Rarely, a second exception
follows while the thread handles the first one. For the application, the call has failed.

Oracles: an interrupt affects only the interrupted call. No thread waits for ever (progress), no lock is
left (:mod:`tests.simulator.standing`), nothing stale is read (history), and idle clients hear of the
last transaction. Where nothing else fails, no call of another thread fails because a connection was
lost.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from neo.client.errors import OutcomeUnknownError, TransactionLostError, UnavailableError
from tests.simulator.threads import SimThread
from tests.simulator.world import Violation

if TYPE_CHECKING:
    from tests.simulator.run import Run

#: Name of the fault.
INTERRUPTED = "interrupted"
#: Greatest number of points before an interrupt, and before a second one. For half of the interrupts
#: the bound is a tenth of that, because most calls pass few points.
FIRST_MAX = 300
SECOND_MAX = 30
SECOND_CHANCE = 0.25
#: Time within which an idle client hears of a transaction, though several of its reading threads were
#: interrupted one after the other.
HEARD_SECONDS = 10.0


class Interrupts:
    def __init__(self, run: Run, random: Random) -> None:
        self._run = run
        self._random = random
        self.begun = False

    def act(self) -> None:
        """Interrupt a thread that executes a step, or one in its next step."""
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
        """Handle the failure of a call that was not interrupted."""
        run = self._run
        lost = isinstance(error, TransactionLostError) and " lost" in str(error)
        lost = lost or isinstance(error, (OutcomeUnknownError, UnavailableError))
        # Visitors close their storage while they commit.
        lost = lost and "the storage is closed" not in str(error)
        if lost and self.begun and run.calm and not run.sites.fired:
            run.world.fail(Violation(f"an interrupt of another thread failed a call: {error}"))

    def wait_heard(self) -> None:
        """Wait until idle clients have heard of the last transaction. No thread may work."""
        if self.begun:
            self._run.world.run_until(
                self._heard, HEARD_SECONDS, "clients that do nothing hear of the last transaction"
            )

    def _heard(self) -> bool:
        """Return whether all clients have heard, except those that lost the master: they join when
        used."""
        for application in self._run.applications:
            storage = application.storage
            master = None if storage is None else storage._session.master.current
            if storage is not None and master is not None and master.channel.lost is None:
                if storage.replicas.last_tid < self._run.history.told_tid:
                    return False
        return True
