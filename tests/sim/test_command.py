"""The command line: exit codes, replays, stories, the shrinker."""

from __future__ import annotations

import re

import pytest

from tests.sim.command import simulate, told
from tests.simulator.__main__ import main

#: A canary that the first seeds find, in short runs.
QUICK = ("--canary", "reads-do-not-wait")


def test_a_failing_seed_tells_its_messages_and_how_to_replay_it_and_the_replay_fails_alike() -> None:
    run = simulate(*QUICK, "--jobs", "1", "--story", "200")
    assert run.returncode == 0, told(run)  # the canary is found
    message = r"client\d +-> storage\d: AskObject\(oid=[0-9a-f]{16}, "
    assert re.search(message, run.stdout), told(run)
    command = re.search(r"replay: python -m tests\.simulator (.*)", run.stdout)
    error = re.search(r"failed after (.*)", run.stdout)
    assert command and error, told(run)
    again = simulate(*command[1].split())
    assert again.returncode == 0, told(again)
    assert error[1] in again.stdout


def test_seeds_that_pass_end_with_exit_code_0() -> None:
    run = simulate("--seeds", "0:2", "--seconds", "1", "--faults", "none")
    assert run.returncode == 0, told(run)
    assert "2 seeds, 0 failed" in run.stdout


def test_a_canary_that_no_seed_finds_ends_with_exit_code_1() -> None:
    # No transaction of this workload packs.
    run = simulate("--canary", "pack-takes-the-current", "--workloads", "bank", "--seeds", "0:2")
    assert run.returncode == 1, told(run)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--workloads", "bank,nothing"),
        ("--faults", "rain"),
        ("--canary", "no-such-bird"),
        ("--seeds", "ten"),
        ("--seeds", "5:5"),
        ("--storages", "0"),
    ],
)
def test_wrong_usage_ends_with_exit_code_2_and_names_the_option(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["simulator", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert arguments[0] in capsys.readouterr().err


def test_the_shrinker_finds_a_shorter_failure() -> None:
    # Found in a run with many unrelated faults, sites and knobs.
    run = simulate(
        "--canary", "conflicts-compared-wrongly", "--workloads", "bank,counters,deadlocks",
        "--seconds", "4", "--faults", "pause,slow-link", "--once", "--shrink", "--jobs", "1",
    )  # fmt: skip
    assert run.returncode == 0, told(run)
    events = [int(found) for found in re.findall(r"(\d+) events: ", run.stdout)]
    assert len(events) == 2 and events[1] < events[0], told(run)
    shortest = run.stdout.partition("shortest failure found")[2]
    command = re.search(r"replay: python -m tests\.simulator (.*)", shortest)
    assert command, told(run)
    # Of two faults, ten sites and two dozen knobs, very few are left.
    names = re.findall(r"--(?:faults|sites|knobs) (\S+)", command[1])
    assert len(names) == 3, told(run)
    assert len([name for name in ",".join(names).split(",") if name != "none"]) <= 2, told(run)
    again = simulate(*command[1].split())
    assert again.returncode == 0 and f"{events[1]} events" in again.stdout, told(again)
