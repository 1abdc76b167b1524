"""The loop of a soak: start rounds, judge them, write the summary after each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tests.soak.processes import End
from tests.soak.scheduler import Round, Scheduler
from tests.soak.search import Command, draw
from tests.soak.summary import Failure, Summary, meaningful


class Machine(Protocol):
    """What runs rounds: ``processes.Processes``."""

    stopped: bool

    def now(self) -> float: ...
    def start(self, begun: Round, command: Command) -> None: ...
    def wait(self) -> None: ...
    def ended(self) -> dict[Round, End]: ...
    def kill(self, late: Round) -> End: ...
    def stop(self, running: Round) -> End: ...


class Soak:
    """``forget``: deletes what a round has left that did not fail. ``save``: stores the summary. ``say``:
    prints a line."""

    def __init__(
        self,
        scheduler: Scheduler,
        machine: Machine,
        summary: Summary,
        *,
        forget: Callable[[End], None],
        save: Callable[[Summary], None],
        say: Callable[[str], None],
    ) -> None:
        self._scheduler = scheduler
        self._machine = machine
        self._summary = summary
        self._forget = forget
        self._save = save
        self._say = say
        self._commands: dict[Round, Command] = {}

    def run(self) -> None:
        """Run rounds until the time is over or a signal comes. Then end those that run."""
        machine, scheduler = self._machine, self._scheduler
        try:
            while not machine.stopped and not scheduler.over(machine.now()):
                self._start()
                machine.wait()
                self._judge_ended()
                for late in scheduler.overdue(machine.now()):
                    self._judge(late, machine.kill(late), failed=True, hangs=True)
        finally:
            self._judge_ended()
            for running in list(scheduler.running):
                self._cut_off(running, machine.stop(running))
            self._summary.state = "interrupted" if machine.stopped else "complete"
            self._store()

    def _start(self) -> None:
        while (begun := self._scheduler.next(self._machine.now())) is not None:
            drawn = draw(self._summary.seed, begun.search.name, begun.number)
            self._commands[begun] = command = begun.search.command(drawn)
            self._machine.start(begun, command)

    def _judge_ended(self) -> None:
        for done, end in self._machine.ended().items():
            self._judge(done, end, failed=end.code != 0)

    def _judge(self, done: Round, end: End, failed: bool, hangs: bool = False) -> None:
        now = self._machine.now()
        self._scheduler.ended(done, now, failed, complete=not hangs)
        command, search, seconds = self._commands.pop(done), done.search, now - done.started
        tally = self._summary.tally(search)
        tally.rounds += 1
        tally.seconds += seconds
        tally.failures += failed
        tally.given_up = search in self._scheduler.given_up()
        verdict = "hangs" if hangs else "FAILED" if failed else "passed"
        self._say(f"{now / 60:6.1f} min  {done.name:24} {verdict} after {seconds:.0f} s")
        if failed:
            what = tuple(meaningful(end.output))
            commands = tuple(search.repeat(command, end.output))
            files = str(end.log), str(end.folder)
            failure = Failure(done.name, seconds, hangs, what, commands, search.exact, *files)
            self._summary.failures.append(failure)
            for line in (*what, *commands):
                self._say(f"            {line}")
        else:
            self._forget(end)
        self._store()

    def _cut_off(self, running: Round, end: End) -> None:
        now = self._machine.now()
        self._scheduler.ended(running, now, failed=False, complete=False)
        tally = self._summary.tally(running.search)
        tally.cut_off += 1
        tally.seconds += now - running.started
        self._forget(end)

    def _store(self) -> None:
        self._summary.seconds = self._machine.now()
        self._save(self._summary)
