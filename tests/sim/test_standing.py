"""Clients that stand still between vote and finish, and transactions that the operator ends."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.alarm import alarmed
from tests.simulator.run import Options, Run
from tests.simulator.standing import find_circle

CALM = Options(
    seconds=15.0,
    faults=("stand-still",),
    sites=("none",),
    knobs=("none",),
    workloads=("bank",),
    disk="memory",
    storages=2,
    replicas=1,
    backup=False,
    masters=1,
)


#: Lines of a story that show that there were waits to judge.
SEEN = (
    "stands still",
    "the object is locked by another transaction for",
    "ended by the operator",
)


def test_others_get_a_conflict_in_time_and_the_operator_ends_transactions() -> None:
    """The oracles judge the run; this test checks that there were waits to judge."""
    missing = set(SEEN)
    for seed in range(8, 38):
        run = Run(seed, CALM)
        with alarmed(run.world):
            run.execute()
        missing -= {text for text in SEEN if any(text in line for line in run.world.story)}
        if not missing:
            assert run.faults.calm and run.faults.injected["stand-still"]
            return
    raise AssertionError(f"never seen: {missing}")


def test_a_circle_is_found_and_a_chain_is_none() -> None:
    assert find_circle({}) == []
    assert find_circle({b"1": {b"2"}, b"2": {b"3"}}) == []
    assert find_circle({b"1": {b"2"}, b"2": {b"1"}, b"3": {b"4"}}) == [b"1", b"2"]
    assert find_circle({b"1": {b"2", b"9"}, b"2": {b"3"}, b"3": {b"1"}}) == [b"1", b"2", b"3"]


def test_with_other_faults_waits_are_not_judged_to_the_second() -> None:
    made = Run(1, replace(CALM, faults=("stand-still", "pause")))
    assert not made.faults.calm
