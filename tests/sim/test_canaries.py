"""Planted bugs are found, and without them no bug is found."""

from __future__ import annotations

import inspect

import pytest

from tests.sim.command import SECONDS_MAX, simulate, told
from tests.simulator.canaries import CANARIES, planted
from tests.simulator.canaries.quick import QUICK
from tests.simulator.cluster import Cluster
from tests.simulator.hunt import hunt, options_of
from tests.simulator.planting import Canary, Patch


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_planted_bugs_are_found_within_their_seeds() -> None:
    run = simulate("--canaries", ",".join(QUICK))
    assert run.returncode == 0, told(run)
    assert f"{len(QUICK)} of {len(QUICK)} were found" in run.stdout, told(run)


def test_each_oracle_finds_a_planted_bug_in_the_suite() -> None:
    hunted = {oracle for name in QUICK for oracle in _oracles(CANARIES[name])}
    assert {oracle for canary in CANARIES.values() for oracle in _oracles(canary)} <= hunted


def _oracles(canary: Canary) -> set[str]:
    """Return the names before the colons: ``reads, cells: what they say; tables: …``."""
    parts = canary.oracle.split("; ")
    return {name.strip() for part in parts for name in part.partition(":")[0].split(",")}


def test_an_error_of_the_planted_bug_itself_is_no_find(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Cluster) -> None:
        raise TypeError("wrong arguments")

    def patches() -> list[Patch]:
        return [(Cluster, "start", broken)]

    canary = Canary("broken", "it does not run at all", "none", patches, 2)
    monkeypatch.setitem(CANARIES, "broken", canary)
    found = hunt("broken")
    assert found.seed is None and "no complaint of an oracle: TypeError" in found.error


def test_there_are_enough_of_them_and_each_is_described() -> None:
    assert len(CANARIES) >= 14
    for canary in CANARIES.values():
        assert canary.slip and canary.oracle and 0 < canary.seeds <= 200, canary.name


@pytest.mark.parametrize("name", sorted(CANARIES))
def test_a_planted_bug_is_gone_after_the_block(name: str) -> None:
    def found() -> list[object]:
        return [inspect.getattr_static(owner, attribute) for owner, attribute, _ in patches]

    patches = CANARIES[name].patches()
    before = found()
    with planted(name):
        assert found() != before
    assert found() == before


def test_the_options_of_a_canary_replay_it() -> None:
    arguments = options_of(CANARIES["reads-do-not-wait"]).arguments()
    assert "--canary reads-do-not-wait" in arguments
    assert "--faults none" in arguments


def test_the_options_of_canaries_find_nothing_in_right_code() -> None:
    """The oracles find the bugs, not the options of the runs."""
    run = simulate(
        "--seeds", "0:3", "--seconds", "2", "--faults", "none", "--workloads", "bank,deadlocks"
    )  # fmt: skip
    assert run.returncode == 0, told(run)
