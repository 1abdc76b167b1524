"""The same seed gives the same run, in this process and in any other."""

from __future__ import annotations

import pytest

from tests.sim.command import simulate, told
from tests.simulator.run import Options, Run
from tests.simulator.trial import Trial, attempt
from tests.simulator.world import World

SHORT = Options(seconds=1.0)


@pytest.mark.parametrize("disk", ["memory", "sqlite"])
def test_two_runs_of_a_seed_have_the_same_digest(disk: str) -> None:
    options = Options(seconds=1.0, disk=disk)
    first, second = (attempt(7, options, twice=False).result for _ in range(2))
    assert first is not None and first == second


def test_two_seeds_are_different_runs() -> None:
    first, second = (attempt(seed, SHORT, twice=False).result for seed in (1, 2))
    assert first is not None and second is not None
    assert first.digest != second.digest


def test_processes_agree_on_a_seed() -> None:
    """Sets of bytes have another order in each: seeds 12 and 19 differed when such an order counted."""
    runs = [simulate("--seeds", "10:12", "--once", hashes=hashes) for hashes in ("0", "1")]
    summaries = [run.stdout.rpartition(",")[0] for run in runs]  # without the rate, seeds a minute
    assert runs[0].returncode == 0, told(runs[0])
    assert summaries == summaries[:1] * 2 and "2 seeds, 0 failed" in summaries[0]


def test_a_run_that_looks_at_the_real_world_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = iter(range(10))
    execute = Run.execute

    def undetermined(self: Run) -> object:
        self.world.log("world", f"is {next(outside)}")
        return execute(self)

    monkeypatch.setattr(Run, "execute", undetermined)
    trial = attempt(7, SHORT)
    assert trial.result is None and trial.error == "two runs of the seed differ"


def test_a_story_takes_no_part_in_the_run() -> None:
    """A seed that fails is run again with its messages in the story, and must fail in the same way."""
    options = Options(
        seconds=2.0,
        faults=("none",),
        workloads=("bank",),
        disk="memory",
        canary="data-not-released",
    )
    plain, told = (attempt(0, options, twice=False, story=story) for story in (False, True))
    assert isinstance(plain, Trial) and plain.result is None
    assert (plain.error, plain.events) == (told.error, told.events)
    assert not any(" -> " in line for line in plain.story)
    assert any(" -> " in line for line in told.story)


def test_every_event_and_line_counts_in_the_digest() -> None:
    def world(*names: str) -> World:
        world = World(0)
        for name in names:
            world.call_later(1.0, lambda: None, name)
        world.run(2.0)
        return world

    assert world("a").digest == world("a").digest
    assert world("a").digest != world("b").digest
    assert world("a", "b").digest != world("b", "a").digest
    lined = world("a")
    lined.log("node", "does something")
    assert lined.digest != world("a").digest
