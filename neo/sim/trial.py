"""One seed tried: run it (twice), and say how it ended."""

from __future__ import annotations

import re
import traceback
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass

from neo.sim.alarm import alarmed
from neo.sim.canaries import planted
from neo.sim.run import Options, Result, Run
from neo.sim.trace import traced

#: An oid or a tid.
_ID = re.compile(r"\b[0-9a-f]{16}\b")
_NO_ID = "0" * 16
_MESSAGE = " -> "


@dataclass
class Trial:
    """``result`` is None when it failed; then ``error`` and ``story`` say how."""

    seed: int
    options: Options
    result: Result | None = None
    error: str = ""
    details: str = ""
    story: tuple[str, ...] = ()
    events: int = 0

    def command(self) -> str:
        """What replays it."""
        return f"python -m neo.sim --seeds {self.seed} {self.options.arguments()}".rstrip()

    def describe(self) -> str:
        return f"{self.events} events: {self.error}\n  replay: {self.command()}"

    def report(self, lines: int) -> str:
        """The events that led to the failure, what failed, and how to see it again."""
        story = "\n".join(self.told(lines))
        return f"{story}\n{self.details}seed {self.seed} failed after {self.describe()}"

    def told(self, lines: int) -> list[str]:
        """The last lines of the story; if the error names objects or transactions, of those that
        are about them or about the nodes."""
        ids = set(_ID.findall(self.error)) - {_NO_ID}
        story = [
            line
            for line in self.story
            if not ids or _MESSAGE not in line or ids.intersection(_ID.findall(line))
        ]
        return story[-lines:]


def attempt(seed: int, options: Options, twice: bool = True, story: bool = False) -> Trial:
    """Run a seed. ``twice``: a second run must give the same digest. ``story``: run a failing seed
    again to tell every message in its story."""
    trial = _once(seed, options)
    if twice and trial.result is not None:
        again = _once(seed, options)
        if again.result is None or again.result.digest != trial.result.digest:
            first = trial.result
            trial.result = None
            trial.error = "two runs of the seed differ"
            trial.details = f"first: {first}\nsecond: {again.result or again.error}\n"
    elif story and trial.result is None:
        again = _once(seed, options, trace=True)
        if again.error == trial.error:
            trial.story = again.story
        else:
            trial.details += f"a second run ended otherwise: {again.error or 'well'}\n"
    return trial


def _once(seed: int, options: Options, trace: bool = False) -> Trial:
    trial = Trial(seed, options)
    with ExitStack() as stack:
        stack.enter_context(planted(options.canary))
        run = Run(seed, options)
        stack.enter_context(alarmed(run.world))
        if trace:
            run.world.story = deque()
            stack.enter_context(traced(run.world))
        try:
            trial.result = run.execute()
        except (Exception, AssertionError) as e:  # noqa: BLE001  # reported with its seed
            trial.error = f"{type(e).__name__}: {e}"
            trial.details = "".join(traceback.format_exception(e)[-6:])
            trial.story = tuple(run.world.story)
        trial.events = run.world.events
    return trial
