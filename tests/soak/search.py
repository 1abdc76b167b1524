"""A search for bugs, and the command of one of its rounds."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Command:
    """A program with its arguments, and the variables that are added to the environment. Its working
    directory is the root of the tree."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the line that runs it in a shell."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join(self.arguments)])


def interpreter() -> str:
    """Return the path of this Python, from the root of the tree if it is inside."""
    path = Path(sys.executable)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def python(module: str, *arguments: str, **environment: str) -> Command:
    return Command((interpreter(), "-m", module, *arguments), environment)


@dataclass(frozen=True)
class Draw:
    """What differs from round to round: the number of the round, and random numbers of its own.
    ``offset`` is drawn once for a search: which of its slices is the first."""

    number: int
    random: Random
    offset: int

    def seed(self) -> str:
        return str(self.random.randrange(1, 2**32))

    def slice(self, count: int) -> int:
        """Return the number of a slice, below ``count``. ``count`` rounds in a row get all of them."""
        return (self.offset + self.number) % count


def draw(soak_seed: int, name: str, number: int) -> Draw:
    """Return the draw of a round. It does not depend on other searches, nor on how long rounds take."""
    offset = Random(f"{soak_seed} {name}").randrange(2**32)
    return Draw(number, Random(f"{soak_seed} {name} {number}"), offset)


def repeat_round(command: Command, output: str) -> list[str]:
    return [str(command)]


@dataclass(frozen=True)
class Search:
    """One way to look for bugs.

    * ``purpose``: what it does.
    * ``share``: of the time, relative to the other searches.
    * ``command``: returns the command of a round.
    * ``seconds``: that a round takes, as long as none was measured.
    * ``limit``: seconds after which a round hangs.
    * ``repeat``: returns the commands that repeat a failed round, from its command and its output; the
      shortest one first.
    * ``exact``: a repeated round does the same. If not, the moments differ: it may need several tries.
    * ``rounds``: at most so many in a soak.
    * ``least``: seconds that a soak must have.
    * ``begin``: part of the soak before the first round.
    """

    name: str
    purpose: str
    share: float
    command: Callable[[Draw], Command]
    seconds: float
    limit: float
    repeat: Callable[[Command, str], list[str]] = repeat_round
    exact: bool = False
    rounds: int | None = None
    least: float = 0.0
    begin: float = 0.0
