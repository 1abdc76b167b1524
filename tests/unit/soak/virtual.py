"""A soak on virtual time: rounds that end after as many seconds as their search says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.processes import End
from tests.soak.scheduler import Round, Scheduler
from tests.soak.search import Command, Search, python
from tests.soak.soak import Soak
from tests.soak.summary import Summary

STEP = 1.0
#: How long the round with this number takes, its exit code, its output.
Behaviour = Callable[[int], tuple[float, int, str]]


def takes(seconds: float, code: int = 0, output: str = "") -> Behaviour:
    return lambda number: (seconds, code, output)


def a_search(name: str, share: float = 1.0, seconds: float = 10.0, **more: object) -> Search:
    settings: dict[str, object] = {
        "purpose": f"looks for {name}",
        "command": lambda draw: python(name, NEO_X_SEED=draw.seed()),
        "limit": 1000.0,
        **more,
    }
    return Search(name=name, share=share, seconds=seconds, **settings)  # type: ignore[arg-type]


@dataclass
class VirtualMachine:
    """``behaviours``: by the name of the search. ``stop_at``: when a signal comes. ``at_once``: the
    greatest number of rounds that ran together."""

    behaviours: dict[str, Behaviour]
    stop_at: float = float("inf")
    time: float = 0.0
    stopped: bool = False
    at_once: int = 0
    started: list[tuple[float, Round, Command]] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    _running: dict[Round, tuple[float, End]] = field(default_factory=dict)

    def now(self) -> float:
        return self.time

    def start(self, begun: Round, command: Command) -> None:
        self.started.append((self.time, begun, command))
        seconds, code, output = self.behaviours[begun.search.name](begun.number)
        end = End(code, output, Path(f"{begun.name}.log"), Path(f"{begun.name}.files"))
        self._running[begun] = (self.time + seconds, end)
        self.at_once = max(self.at_once, len(self._running))

    def wait(self) -> None:
        self.time += STEP
        self.stopped = self.time >= self.stop_at

    def ended(self) -> dict[Round, End]:
        done = [one for one, (until, _) in self._running.items() if until <= self.time]
        return {one: self._running.pop(one)[1] for one in done}

    def kill(self, late: Round) -> End:
        self.killed.append(late.name)
        return self._running.pop(late)[1]

    def stop(self, running: Round) -> End:
        self.interrupted.append(running.name)
        return self._running.pop(running)[1]


@dataclass
class Soaked:
    """A soak that is over. ``saved``: the state and the rounds of each summary that was stored."""

    machine: VirtualMachine
    summary: Summary
    forgotten: list[str]
    saved: list[tuple[str, int]]
    said: list[str]


def soaked(
    searches: dict[Search, Behaviour],
    seconds: float,
    jobs: int = 1,
    rounds: int | None = None,
    stop_at: float = float("inf"),
    seed: int = 1,
) -> Soaked:
    """Run a soak on virtual time."""
    machine = VirtualMachine({search.name: how for search, how in searches.items()}, stop_at)
    over = Soaked(machine, Summary(seed, "abc1234", "again"), [], [], [])

    def save(summary: Summary) -> None:
        done = sum(tally.rounds for tally in summary.searches.values())
        over.saved.append((summary.state, done))

    Soak(
        Scheduler(list(searches), seconds, jobs, rounds),
        machine,
        over.summary,
        forget=lambda end: over.forgotten.append(end.log.stem),
        save=save,
        say=over.said.append,
    ).run()
    return over
