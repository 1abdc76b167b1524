"""Seeds that never end, or that end their process, are named."""

from __future__ import annotations

import os

import pytest

from tests.simulator import trials
from tests.simulator.run import Options
from tests.simulator.trial import Trial

OPTIONS = Options(canary="reads-do-not-wait", seconds=1.5)


def endless_in_3(seed: int, options: Options, twice: bool, story: bool) -> Trial:
    while seed == 3:
        pass
    return Trial(seed, options)


def deadly_in_3(seed: int, options: Options, twice: bool, story: bool) -> Trial:
    if seed == 3:
        os._exit(1)
    return Trial(seed, options)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("attempt", [endless_in_3, deadly_in_3])
def test_seeds_under_way_are_named_when_a_process_ends(
    monkeypatch: pytest.MonkeyPatch, jobs: int, attempt: object
) -> None:
    monkeypatch.setattr(trials, "attempt", attempt)
    tried = []
    with pytest.raises(trials.ProcessLost) as lost:
        for trial in trials.trials(range(10), OPTIONS, False, jobs, seconds_max=0.5):
            tried.append(trial.seed)
    assert tried == list(range(len(tried))) and len(tried) <= 3
    command = Trial(3, OPTIONS).command()
    assert f"replay: {command}\n" in f"{lost.value}\n"
    assert str(lost.value).count("replay:") <= jobs
