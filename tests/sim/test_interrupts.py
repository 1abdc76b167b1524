"""Exceptions from outside in simulated threads come at every point, and only there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from neo.client.errors import TransactionLostError
from tests.sim.client import ADDRESS, Client
from tests.simulator.alarm import alarmed
from tests.simulator.clients import SimHost
from tests.simulator.network import End
from tests.simulator.run import Options, Run
from tests.simulator.threads import Interrupted
from tests.simulator.world import Violation

ALONE = Options(
    seconds=10.0,
    faults=("interrupted",),
    sites=("none",),
    knobs=("none",),
    workloads=("bank",),
    disk="memory",
    storages=2,
    replicas=1,
    backup=False,
    masters=1,
)


class Interrupting(Client):
    """A client whose thread is interrupted at a point of a call."""

    def interrupt(self, call: Callable[[SimHost], object], points: int) -> bool:
        """Return whether the exception came."""
        came: list[bool] = []

        def run() -> None:
            try:
                call(self.host)
                came.append(False)
            except Interrupted:
                came.append(True)

        thread = self.process.spawn(run)
        self.process.interrupt(thread, [points])
        self.world.run(5.0)
        assert came, "the thread waits for ever"
        return came[0]


def sleep(host: SimHost) -> None:
    host.sleep(1.0)


def wait(host: SimHost) -> None:
    host.waker().wait(1.0)


def receive(host: SimHost) -> None:
    host.connect(ADDRESS, None).receive([], wait=True)


def contend(host: SimHost) -> None:
    """Wait for a lock that another thread holds."""
    lock = host.lock()

    def other() -> None:
        with lock:
            host.thread().sleep(1.0)

    host._process.spawn(other)
    host.thread().sleep(0.5)
    try:
        with lock:
            pass
    finally:
        assert lock._owner is not host.thread()


@pytest.mark.parametrize("call", [sleep, wait, receive, contend])
def test_whatever_waits_is_interrupted_before_it_waits_while_it_waits_and_afterwards(
    call: Callable[[SimHost], object],
) -> None:
    came = [Interrupting().interrupt(call, points) for points in range(20)]
    assert came.count(True) >= 2
    assert not came[-1]  # the call has fewer points
    assert came == sorted(came, reverse=True)


class Reading:
    """A server that keeps the bytes that it receives."""

    host = "server"

    def __init__(self) -> None:
        self.data = b""

    def accepted(self, end: End) -> None:
        end.receiver = self

    def received(self, data: bytes) -> None:
        self.data += data

    def lost(self, reason: str) -> None: ...


def test_the_rest_of_what_was_half_sent_is_sent_by_the_next_call() -> None:
    client = Interrupting()
    server = client.process.network.listeners[ADDRESS] = Reading()
    rests: list[int] = []

    def send(host: SimHost) -> None:
        outgoing = [b"hello, ", b"world"]
        wire = host.connect(ADDRESS, None)
        for points in range(4):
            host.thread().interrupts = [points]
            try:
                wire.send(outgoing)
            except Interrupted:
                rests.append(len(b"".join(outgoing)))
        host.thread().interrupts = []
        outgoing += [b"!"]
        wire.send(outgoing)

    client.process.spawn(lambda: send(client.host))
    client.world.run(5.0)
    # Interrupted before the send, in its middle, and in the middle of the rest; then nothing is left.
    assert rests[:2] == [12, 6] and rests[-1] == 0
    assert server.data == b"hello, world!"


def test_interrupts_alone_cost_no_other_call() -> None:
    """The oracles judge the run; this test checks that there were interrupts to judge."""
    interrupts = 0
    for seed in range(2):
        run = Run(seed, ALONE)
        with alarmed(run.world):
            run.execute()
        assert run.faults.calm and run.interrupts.begun
        interrupts += sum("is interrupted" in line for line in run.world.story)
    assert interrupts


def test_a_call_that_fails_because_of_an_interrupt_of_another_thread_is_a_violation() -> None:
    run = Run(1, ALONE)
    run.cluster.start()
    run.interrupts.begun = True
    run.interrupts.failed(TransactionLostError("tpc_finish: INCOMPLETE_TRANSACTION"))
    run.interrupts.failed(TransactionLostError("connection to the master lost"))
    with pytest.raises(Violation, match="failed a call: connection to the master lost"):
        run.world.run(1.0)
    other = Run(1, replace(ALONE, faults=("interrupted", "reset")))
    other.cluster.start()
    other.interrupts.begun = True
    other.interrupts.failed(TransactionLostError("connection to the master lost"))
    other.world.run(0.1)


def test_other_seeds_stay_what_they_are() -> None:
    """Without interrupts no random number is drawn for them, and no sweep runs."""
    run = Run(2, replace(ALONE, faults=("none",), seconds=2.0))
    with alarmed(run.world):
        run.execute()
    assert not run.interrupts.begun
    processes = [process for cluster in run.clusters for process in cluster.clients]
    assert processes and not any(process.swept for process in processes)
