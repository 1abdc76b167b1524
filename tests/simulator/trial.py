"""Try one seed: run it (twice), and report how it ended."""

from __future__ import annotations

import gc
import re
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.simulator.alarm import alarmed
from tests.simulator.canaries import planted
from tests.simulator.run import Options, Result, Run
from tests.simulator.trace import traced

#: An oid or a tid.
_ID = re.compile(r"\b[0-9a-f]{16}\b")
_NO_ID = "0" * 16
_MESSAGE = " -> "
#: Greatest number of lines of a story with all its messages: 20 MB.
TRACED_LENGTH = 100_000


@dataclass
class Trial:
    """The outcome of a seed. It failed if ``result`` is None; then the other fields say how."""

    seed: int
    options: Options
    result: Result | None = None
    error: str = ""
    details: str = ""
    story: tuple[str, ...] = ()
    events: int = 0

    def command(self) -> str:
        """Return the command that replays the run."""
        return f"python -m tests.simulator --seeds {self.seed} {self.options.arguments()}".rstrip()

    def describe(self) -> str:
        return f"{self.events} events: {self.error}\n  replay: {self.command()}"

    def report(self, lines: int) -> str:
        """Return the last events before the failure, the error, and the command to replay it."""
        story = "\n".join(self.told(lines))
        return f"{story}\n{self.details}seed {self.seed} failed after {self.describe()}"

    def told(self, lines: int) -> list[str]:
        """Return the last lines of the story. If the error names objects or transactions, return only
        lines about them or about the nodes."""
        ids = set(_ID.findall(self.error)) - {_NO_ID}
        story = [
            line
            for line in self.story
            if not ids or _MESSAGE not in line or ids.intersection(_ID.findall(line))
        ]
        return story[-lines:] if lines else []


def attempt(seed: int, options: Options, twice: bool = True, story: bool = False) -> Trial:
    """Run a seed. ``twice``: a second run must give the same digest. ``story``: run a failing seed
    again, with every message in its story."""
    trial = _once(seed, options)
    if twice and trial.result is not None:
        again = _once(seed, options)
        if again.result is None or again.result.digest != trial.result.digest:
            return _differ(trial, again)
    elif story and trial.result is None:
        again = _once(seed, options, trace=True)
        if again.error == trial.error:
            trial.story = again.story
        else:
            trial.details += f"a second run ended otherwise: {again.error or 'well'}\n"
    if trial.result is not None:
        trial.story = ()
    return trial


def _differ(first: Trial, second: Trial) -> Trial:
    """Return a failure: the two runs differ, so that the run depends on the real world."""
    pairs = enumerate(zip(first.story, second.story, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(first.story), len(second.story)))
    details = (
        f"first:  {first.result}\nsecond: {second.result or second.error}\n"
        f"first:  {''.join(first.story[at : at + 1])}\n"
        f"second: {''.join(second.story[at : at + 1])}\n"
    )
    error = "two runs of the seed differ"
    return Trial(first.seed, first.options, None, error, details, first.story[:at], first.events)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Inside the block, switch the garbage collector off. Finalizers may take locks, and so random
    numbers, and the seed does not decide when the collector runs them."""
    gc.collect()
    # Modules stay for ever: to traverse them again at each seed takes longer than many a seed.
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _once(seed: int, options: Options, trace: bool = False) -> Trial:
    trial = Trial(seed, options)
    with ExitStack() as stack:
        stack.enter_context(_no_garbage_collection())
        stack.enter_context(planted(options.canary))
        run = Run(seed, options)
        stack.enter_context(alarmed(run.world))
        if trace:
            run.world.story = deque(maxlen=TRACED_LENGTH)
            stack.enter_context(traced(run.world))
        try:
            trial.result = run.execute()
        except (Exception, AssertionError) as e:  # noqa: BLE001  # reported with its seed
            trial.error = f"{type(e).__name__}: {e}"
            trial.details = "".join(traceback.format_exception(e)[-6:])
        trial.story = tuple(run.world.story)
        trial.events = run.world.events
    return trial
