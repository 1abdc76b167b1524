"""The shrinker leaves out what a failure does not need, and keeps what it needs."""

from __future__ import annotations

import pytest

from tests.simulator import shrink
from tests.simulator.run import Options
from tests.simulator.trial import Trial

FAILURE = "Violation: client1/bank2 read 0000000000000003 and got 17 rows"


def failing(options: Options, seed: int = 7, error: str = FAILURE) -> Trial:
    size = (options.masters or 5) + (options.storages or 4) + int(options.seconds)
    return Trial(seed, options, None, error, events=1000 + size)


def needs_a_cut_master(seed: int, options: Options, twice: bool) -> Trial:
    """Fail in one way with this fault and three masters, and in another way with a backup."""
    if options.backup is not False:
        return failing(options, seed, "Violation: the backup misses 3 rows")
    if "cut-master" in (options.faults or shrink.FAULTS) and (options.masters or 5) >= 3:
        return failing(options, seed, FAILURE.replace("3", f"{seed}"))
    trial = failing(options, seed)
    trial.result = object()  # type: ignore[assignment]  # any
    return trial


def test_a_failure_of_several_masters_is_shrunk_to_the_one_fault_that_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shrink, "attempt", needs_a_cut_master)
    options = shrink.shrink(failing(Options()), Options()).options
    assert options.faults == ("cut-master",)
    assert (options.masters, options.backup, options.replicas) == (3, False, 0)
    assert options.sites == options.knobs == ("none",)


def test_failures_are_alike_but_for_ids_and_numbers() -> None:
    first = failing(Options())
    same = "Violation: client3/bank1 read 00000000000000ff and got 2 rows"
    assert shrink.alike(first, failing(Options(), error=same))
    assert not shrink.alike(first, failing(Options(), error="Violation: partition 1 is not equal"))


@pytest.mark.parametrize(
    ("longer", "first", "left"),
    [(1.2, 2000, ("none",)), (1.6, 2000, ("WINDOW",)), (1.2, 1100, ("WINDOW",))],
)
def test_a_run_with_fewer_names_may_be_longer_but_not_much_and_not_longer_than_the_first(
    longer: float, first: int, left: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt(seed: int, options: Options, twice: bool) -> Trial:
        trial = failing(options, seed)
        trial.events = int(1000 * (longer if options.knobs == shrink.NONE else 1))
        # One node less does not outweigh one more event.
        trial.events += options.storages == 1
        return trial

    monkeypatch.setattr(shrink, "attempt", attempt)
    options = Options(
        workloads=("bank", "undo"), faults=shrink.NONE, sites=shrink.NONE, knobs=("WINDOW", "PAGE"),
        storages=2,
    )  # fmt: skip
    trial = failing(options)
    trial.events = first
    found = shrink.shrink(trial, options).options
    assert (found.workloads, found.knobs, found.storages) == (("bank",), left, 2)
