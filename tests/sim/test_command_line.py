"""The command that replays a run: the arguments of its options are parsed to the same options."""

from __future__ import annotations

import random
import shlex

import pytest

from tests.simulator.canaries import CANARIES
from tests.simulator.command_line import options_of, parser
from tests.simulator.disk import DISKS
from tests.simulator.hunt import options_of as options_of_canary
from tests.simulator.run import Options
from tests.simulator.shrink import FAULTS, KNOB_NAMES, SITES
from tests.simulator.workloads import WORKLOADS


def parsed(arguments: str) -> Options:
    return options_of(parser(None).parse_args(shlex.split(arguments)))


@pytest.mark.parametrize("name", sorted(CANARIES))
@pytest.mark.parametrize("more", ["", "--full-mix", "--seconds 10", "--full-mix --seconds 0.3"])
def test_a_run_with_a_planted_bug_is_replayed_with_its_options(name: str, more: str) -> None:
    options = parsed(f"--canary {name} {more}")
    assert parsed(options.arguments()) == options


@pytest.mark.parametrize("name", sorted(CANARIES))
def test_a_hunt_for_a_planted_bug_is_replayed_with_its_options(name: str) -> None:
    options = options_of_canary(CANARIES[name])
    assert parsed(options.arguments()) == options


def test_any_options_are_replayed() -> None:
    for seed in range(500):
        options = any_options(random.Random(seed))
        assert parsed(options.arguments()) == options


def any_options(random: random.Random) -> Options:
    def some(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(random.sample(names, random.randint(1, len(names))))

    def or_none(names: tuple[str, ...]) -> tuple[str, ...] | None:
        return random.choice([None, ("none",), some(names)])

    return Options(
        seconds=random.choice([10.0, 2.0, 10 / 2 ** random.randrange(9), random.uniform(0, 20)]),
        faults=or_none(FAULTS),
        sites=or_none(SITES),
        knobs=or_none(KNOB_NAMES),
        workloads=random.choice([(), some(tuple(WORKLOADS))]),
        disk=random.choice([None, *DISKS]),
        storages=random.choice([None, 1, 3]),
        replicas=random.choice([None, 0, 2]),
        backup=random.choice([None, False, True]),
        masters=random.choice([None, 1, 5]),
        scrub=random.choice([None, 0.0, 4.0]),
        operations=random.choice([None, False, True]),
        archives=random.choice([None, False, True]),
        machines=random.choice([None, False, True]),
        kept=random.choice([None, False, True]),
        canary=random.choice([None, *CANARIES]),
    )


def test_planted_bugs_are_hunted_for_by_name_or_all_of_them() -> None:
    first, second, *_ = CANARIES
    parse = parser(None).parse_args
    assert parse(["--canaries", f"{second},{first}"]).canaries == (second, first)
    assert parse(["--canaries"]).canaries == tuple(CANARIES)
    assert parse(["--canaries", "--jobs", "1"]).canaries == tuple(CANARIES)
    assert parse([]).canaries is None
    with pytest.raises(SystemExit):
        parse(["--canaries", "nonsense"])
