"""Clients that stand still between vote and finish for longer than others wait, and the end of
transactions by the operator.

Oracles: where nothing else fails, no store waits for a lock for longer than ``wait-timeout`` and a
moment, and no transactions wait for each other; at the end of each run no lock is left, though the
clients are still connected; what was ended is not visible (the history, as for every transaction
whose application was told that it is lost).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from neo.protocol.packets import EndTransaction
from neo.storage.core import StorageCore
from tests.simulator.console import Command
from tests.simulator.world import Violation

if TYPE_CHECKING:
    from tests.simulator.run import Run

#: The fault.
STAND_STILL = "stand-still"
#: How long a client stands still, in its ``wait-timeout``.
STILL = (1.2, 2.5)
#: Clients that wait for longer do not stand still: with fast links the others would do a million things.
TIMEOUT_SECONDS_MAX = 5.0
#: Part of the occasions on which the operator ends a transaction.
END_CHANCE = 0.5
#: It is looked so often how long stores have waited.
LOOK_SECONDS = 1.0
#: A thread that waits for bytes looks at its clock once a second, and that may be slower than the one
#: of the node; then it asks the node, and aborts.
CLOCKS = 1.1
MARGIN_SECONDS = 5.0
#: A circle of transactions that wait for each other is there for a moment while one of them is rebased on
#: one node and not yet on another. One that lasts would end by ``wait-timeout`` only.
CIRCLE_SECONDS = 3.0


class Standing:
    def __init__(self, run: Run, random: Random) -> None:
        self._run = run
        self._random = random
        self._active = True

    def act(self) -> None:
        """The thread that votes next stands still; or the operator ends a transaction."""
        if self._random.random() < END_CHANCE:
            self._end()
        elif self._run.settings["wait_timeout"] <= TIMEOUT_SECONDS_MAX:
            self._random.choice(self._run.applications).at_vote = self._stand

    def stop(self) -> None:
        self._active = False

    def _stand(self) -> None:
        """In the thread of an application, between its vote and its finish."""
        current = self._run.cluster.threads.current
        if self._active and current is not None:
            timeout: float = self._run.settings["wait_timeout"]
            self._run.world.log(current.name, "stands still")
            current.sleep(timeout * self._random.uniform(*STILL))

    def _end(self) -> None:
        """Any transaction, in whatever phase it is: one that is being finished is refused."""
        master = self._run.cluster.master_core
        ttids = [] if master is None else master.coordinator.transactions.ttids()
        if ttids:
            ttid = self._random.choice(ttids)
            Command(self._run.cluster, EndTransaction(ttid), lambda answer: None)

    # -- oracles ---------------------------------------------------------------------------------

    def watch(self) -> None:
        """From now on look how long stores wait. For runs in which nothing else fails."""
        self._look()
        if not self._run.ending:
            self._run.world.call_later(LOOK_SECONDS, self.watch, "look at locks")

    def _look(self) -> None:
        world = self._run.world
        lasting: dict[bytes, set[bytes]] = {}
        limit = CLOCKS * self._run.settings["wait_timeout"] + MARGIN_SECONDS * world.slowness
        for name, core in self._cores():
            for transaction, waiters in core.locks.waiting():
                for ttid, seconds in waiters.items():
                    if seconds > CIRCLE_SECONDS * world.slowness:
                        lasting.setdefault(ttid, set()).add(transaction.ttid)
                    if seconds > limit:
                        world.fail(
                            Violation(
                                f"{name}: {ttid.hex()} has waited {seconds:.0f} s for"
                                f" {transaction.ttid.hex()}, which is {transaction.phase}"
                            )
                        )

        if circle := find_circle(lasting):
            names = ", ".join(ttid.hex() for ttid in circle)
            world.fail(Violation(f"transactions wait for each other: {names}"))

    @property
    def released(self) -> bool:
        """Whether no transaction is left on any storage node."""
        return not any(len(core.locks) for _, core in self._cores())

    def _cores(self) -> list[tuple[str, StorageCore]]:
        processes = self._run.cluster.storages
        return [(p.name, p.core) for p in processes if isinstance(p.core, StorageCore)]


def find_circle(waits: dict[bytes, set[bytes]]) -> list[bytes]:
    """Return transactions that wait for each other, sorted; none if there is no circle. ``waits``: by
    waiting transaction, the holders."""
    left = {ttid: set(holders) for ttid, holders in waits.items()}
    while free := [ttid for ttid, holders in left.items() if not holders & left.keys()]:
        for ttid in free:
            del left[ttid]
    return sorted(left)
