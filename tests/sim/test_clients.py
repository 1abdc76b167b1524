"""Simulated client processes: events that wait while they are stopped, and their clocks."""

from __future__ import annotations

import pytest

from tests.sim.client import Client
from tests.simulator.faults import Faults
from tests.simulator.process import Process
from tests.simulator.run import Options, Run

#: A seed with different wall clocks; with other seeds they may be equal.
WRONG = 2


def test_what_arrives_at_a_stopped_client_is_read_when_it_goes_on() -> None:
    client = Client()
    client.process.spawn(client.reads)
    client.world.run(0.1)  # less than a tick of the thread that reads
    client.process.pause()
    client.server.ends[0].write(b"hello")
    client.world.run(30.0)
    assert client.read == b"" and not client.process.finished
    client.process.resume()
    client.world.run(0.5)
    assert client.read == b"hello"


def test_a_thread_that_slept_longer_than_its_process_was_stopped_wakes_afterwards() -> None:
    client, woken = Client(), list[float]()

    def sleeps() -> None:
        client.host.sleep(1.0)
        woken.append(client.world.now)

    client.process.spawn(sleeps)
    client.world.run(0.5)
    client.process.pause()
    client.world.run(9.5)
    assert not woken
    client.process.resume()
    client.world.run(0.5)
    assert len(woken) == 1 and 10.0 <= woken[0] < 10.1


def test_a_stopped_client_can_be_killed() -> None:
    client = Client()
    client.process.spawn(client.reads)
    client.world.run(0.5)
    client.process.pause()
    client.process.kill()
    client.world.run(0.5)
    assert client.process.finished


def test_a_client_has_the_time_of_its_own_clock() -> None:
    client = Client(rate=0.5)
    before, slept = client.host.now(), list[float]()

    def sleeps() -> None:
        client.host.sleep(1.0)
        slept.append(client.world.now)

    client.process.spawn(sleeps)
    client.world.run(10.0)
    assert client.host.now() - before == pytest.approx(5.0)
    assert 2.0 <= slept[0] < 2.1


# -- in a run ----------------------------------------------------------------------------------------


def stories(kind: str) -> list[list[str]]:
    """Return the stories of the safety phase of some seeds. They differ from process to process."""
    options = Options(
        seconds=2.0, workloads=("bank", "deadlocks"), faults=(kind,), sites=("none",),
        knobs=("none",), disk="memory", masters=1, backup=False,
    )  # fmt: skip
    found = []
    for seed in range(10, 20):
        run = Run(seed, options)
        run.execute()
        story = list(run.world.story)
        found.append(story[: next(i for i, line in enumerate(story) if line.endswith("heals"))])
    return found


def test_clients_are_stopped_while_they_hold_the_locks_of_a_vote() -> None:
    stopped = [
        story[i + 2 :]
        for story in stories("pause-client")
        for i, line in enumerate(story)
        if line.endswith("has voted") and story[i + 1].endswith("is paused")
    ]
    assert stopped
    # Another process executes an event before the stopped one goes on.
    assert any(after and not after[0].endswith("goes on") for after in stopped)


def test_connections_are_reset_between_processes_that_live() -> None:
    lines = [line for story in stories("reset") for line in story]
    assert sum("is reset" in line for line in lines) > 1
    assert not any("is killed" in line or "life 2" in line for line in lines)


def test_kinds_of_faults_that_came_later_are_chosen_by_the_seed() -> None:
    kinds = [tuple(Faults(Run(seed, Options()), None)._kinds) for seed in range(20)]
    for name in ("pause-client", "reset"):
        assert 0 < sum(name in chosen for chosen in kinds) < 20


def test_no_two_machines_agree_about_the_time() -> None:
    def clocks(process: Process) -> tuple[float, float]:
        assert process.clock is not None
        return process.clock_skew, process.clock.rate

    options = Options(seconds=0.1, masters=1, storages=3, workloads=("bank",), backup=False)
    run = Run(WRONG, options)
    shown = [clocks(process) for process in run.servers]
    assert len({skew for skew, _ in shown}) == len({rate for _, rate in shown}) == len(shown) == 5
    run.execute()
    rates = {process.clock.rate for process in run.cluster.clients if process.clock is not None}
    assert len(rates) == len(run.cluster.clients)


def test_clocks_do_not_change_what_a_canary_is_sought_with() -> None:
    options = Options(seconds=0.1, canary="reads-do-not-wait")
    assert all(process.clock is None for process in Run(1, options).servers)
