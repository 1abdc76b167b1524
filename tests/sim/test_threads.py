"""Threads of simulated clients: they run one at a time, and block where real ones would."""

from __future__ import annotations

import pytest

from tests.simulator.threads import SimLock, SimThread, Threads
from tests.simulator.world import Violation, World


class Group:
    """Some threads of a process that can be killed."""

    def __init__(self, seed: int = 0, preemption: float = 0.0) -> None:
        self.world = World(seed)
        self.threads = Threads(self.world, preemption)
        self.dead = False
        self.members: list[SimThread] = []

    def spawn(self, target: object) -> SimThread:
        assert callable(target)
        thread = SimThread(self.threads, f"t{len(self.members)}", target, lambda: self.dead)
        self.members.append(thread)
        return thread

    @property
    def current(self) -> SimThread:
        assert self.threads.current is not None
        return self.threads.current


def test_sleeping_takes_virtual_time() -> None:
    group, woken = Group(), list[float]()

    def sleeper() -> None:
        group.current.sleep(3600.0)
        woken.append(group.world.now)

    group.spawn(sleeper)
    group.world.run(3599.0)
    assert not woken
    group.world.run(2.0)
    assert len(woken) == 1 and 3600.0 <= woken[0] < 3600.1


@pytest.mark.parametrize("seed", range(5))
def test_a_lock_excludes_whatever_the_interleaving(seed: int) -> None:
    group = Group(seed, preemption=0.5)
    lock, inside, order = SimLock(group.threads), list[str](), list[str]()

    def worker() -> None:
        for _ in range(5):
            with lock:
                inside.append(group.current.name)
                group.current.sleep(0.01)
                assert len(inside) == 1
                order.append(inside.pop())

    for _ in range(3):
        group.spawn(worker)
    group.world.run(10.0)
    assert all(member.finished for member in group.members)
    assert sorted(order) == ["t0"] * 5 + ["t1"] * 5 + ["t2"] * 5


def test_seeds_interleave_differently() -> None:
    def order(seed: int) -> str:
        group, seen = Group(seed, preemption=0.5), list[str]()
        lock = SimLock(group.threads)

        def worker() -> None:
            for _ in range(10):
                with lock:
                    seen.append(group.current.name)

        for _ in range(3):
            group.spawn(worker)
        group.world.run(10.0)
        return "".join(seen)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(5)}) > 1


def test_a_reentrant_lock_is_taken_again_by_its_owner_alone() -> None:
    group, seen = Group(), list[str]()
    lock = SimLock(group.threads, reentrant=True)

    def owner() -> None:
        with lock, lock:
            group.current.sleep(1.0)
            seen.append("owner")

    def other() -> None:
        group.current.sleep(0.5)
        with lock:
            seen.append("other")

    group.spawn(owner)
    group.spawn(other)
    group.world.run(5.0)
    assert seen == ["owner", "other"]


def test_a_lock_can_be_tried_without_waiting() -> None:
    group, seen = Group(), list[bool]()
    lock = SimLock(group.threads)

    def owner() -> None:
        with lock:
            group.current.sleep(1.0)

    def other() -> None:
        group.current.sleep(0.5)
        seen.append(lock.acquire(blocking=False))
        group.current.sleep(1.0)
        seen.append(lock.acquire(blocking=False))

    group.spawn(owner)
    group.spawn(other)
    group.world.run(5.0)
    assert seen == [False, True]


def test_a_killed_thread_ends_where_it_stands_and_locks_of_others_go_on() -> None:
    group, seen = Group(), list[str]()

    def victim() -> None:
        group.current.sleep(10.0)
        seen.append("alive")

    thread = group.spawn(victim)
    group.world.run(1.0)
    group.dead = True
    thread.wake()
    group.world.run(20.0)
    assert thread.finished and not seen


def test_an_error_in_a_thread_ends_the_world() -> None:
    group = Group()

    def broken() -> None:
        raise Violation("seen by a workload")

    group.spawn(broken)
    with pytest.raises(Violation, match="seen by a workload"):
        group.world.run(1.0)


def test_outside_of_threads_nobody_contends() -> None:
    lock = SimLock(Group().threads)
    with lock, lock:
        assert not lock.locked()
