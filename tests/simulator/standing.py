"""Fault: clients stand still between vote and finish for longer than others wait; the operator ends
transactions.

Oracles: Where nothing else fails, no store waits for a lock for much longer than ``wait-timeout``, and
no transactions wait for each other. At the end of each run no lock is left, though the clients are
still connected. A transaction that was ended is not visible (checked by the history, as for every
transaction whose application was told that it is lost).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from neo.protocol.packets import EndTransaction
from neo.storage.node import StorageNode
from tests.simulator.console import Command
from tests.simulator.world import Violation

if TYPE_CHECKING:
    from tests.simulator.run import Run

#: Name of the fault.
STAND_STILL = "stand-still"
#: Range of the time for which a client stands still, in units of its ``wait-timeout``.
STILL = (1.2, 2.5)
#: Clients with a longer ``wait-timeout`` do not stand still, because with fast links the other clients
#: would execute a million events meanwhile.
TIMEOUT_SECONDS_MAX = 5.0
#: Probability that the operator ends a transaction instead.
END_CHANCE = 0.5
#: Interval at which the waits of stores are checked.
LOOK_SECONDS = 1.0
#: Factor for the difference of clocks. A waiting thread reads its clock once a second, which may be
#: slower than the node's; then it asks the node, and aborts.
CLOCKS = 1.1
MARGIN_SECONDS = 5.0
#: Longest time for a circle of waiting transactions. A short circle is normal while one of them is
#: rebased on one node and not yet on another. A circle that lasts would end by ``wait-timeout`` only.
CIRCLE_SECONDS = 3.0


class Standing:
    def __init__(self, run: Run, random: Random) -> None:
        self._run = run
        self._random = random
        self._active = True

    def act(self) -> None:
        """Let the thread that votes next stand still, or let the operator end a transaction."""
        if self._random.random() < END_CHANCE:
            self._end()
        elif self._run.settings["wait_timeout"] <= TIMEOUT_SECONDS_MAX:
            self._random.choice(self._run.applications).at_vote = self._stand

    def stop(self) -> None:
        self._active = False

    def _stand(self) -> None:
        """Stand still. Runs in the thread of an application, between its vote and its finish."""
        current = self._run.cluster.threads.current
        if self._active and current is not None:
            timeout: float = self._run.settings["wait_timeout"]
            self._run.world.log(current.name, "stands still")
            current.sleep(timeout * self._random.uniform(*STILL))

    def _end(self) -> None:
        """End any transaction, in any phase. The master refuses one that is being finished."""
        master = self._run.cluster.master_core
        ttids = [] if master is None else master.coordinator.transactions.ttids()
        if ttids:
            ttid = self._random.choice(ttids)
            Command(self._run.cluster, EndTransaction(ttid), lambda answer: None)

    # -- oracles ---------------------------------------------------------------------------------

    def watch(self) -> None:
        """Check from now on how long stores wait. For runs in which nothing else fails."""
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
        """Return whether no transaction is left on any storage node."""
        return not any(len(core.locks) for _, core in self._cores())

    def _cores(self) -> list[tuple[str, StorageNode]]:
        processes = self._run.cluster.storages
        return [(p.name, p.core) for p in processes if isinstance(p.core, StorageNode)]


def find_circle(waits: dict[bytes, set[bytes]]) -> list[bytes]:
    """Return transactions that wait for each other in a circle, sorted, or an empty list. ``waits``:
    waiting transaction → the transactions that hold its locks."""
    left = {ttid: set(holders) for ttid, holders in waits.items()}
    while free := [ttid for ttid, holders in left.items() if not holders & left.keys()]:
        for ttid in free:
            del left[ttid]
    return sorted(left)
