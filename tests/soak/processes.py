"""Rounds as processes. Each has a process group, a file for its output, and a folder for temporary files.

Programs under test start processes in sessions of their own, which outlive their group. They inherit the
variable ``MARK`` of their round, and are found by it when the round ends.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.soak.scheduler import Round
from tests.soak.search import ROOT, Command

MARK = "NEO_SOAK_ROUND"
#: pytest cuts the lines of its summary at the width of the terminal.
COLUMNS = "300"
#: Time to end after SIGTERM, and to write tracebacks after SIGABRT.
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.1
#: The end of an output that is read. More is a loop that prints.
OUTPUT_BYTES = 20_000_000


@dataclass(frozen=True)
class End:
    """How a round ended. ``folder``: its temporary files, which are kept if it failed."""

    code: int
    output: str
    log: Path
    folder: Path


@dataclass(frozen=True)
class _Running:
    process: subprocess.Popen[bytes]
    log: Path
    folder: Path
    mark: str


class Processes:
    """Start rounds, tell which have ended, and end those that must.

    ``seed``: tells the logs of this soak from those of others in the same folder. ``stopped``: a signal
    asked the soak to stop.
    """

    def __init__(self, output: Path, seed: int) -> None:
        output.mkdir(parents=True, exist_ok=True)
        self._output = output
        self._seed = seed
        self._running: dict[Round, _Running] = {}
        self._began = time.monotonic()
        self.stopped = False
        # Tracebacks are wanted of a round that hangs, its memory is not.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    def handle_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def _stop(self, number: int, frame: object) -> None:
        self.stopped = True

    def now(self) -> float:
        """Return the seconds since the soak began."""
        return time.monotonic() - self._began

    def start(self, begun: Round, command: Command) -> None:
        log = self._output / f"{begun.name}-{self._seed}.log"
        folder = Path(tempfile.mkdtemp(prefix=f"soak-{begun.name}-"))
        folder.chmod(0o711)  # servers of databases that run as another user have folders in it
        mark = f"{os.getpid()}-{begun.name}"
        environment = {
            **os.environ,
            **command.environment,
            **{"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": COLUMNS},
            **{"TMPDIR": str(folder), MARK: mark},
        }
        with open(log, "wb") as file:
            file.write(f"{command}\n\n".encode())
            file.flush()
            process = subprocess.Popen(
                command.arguments,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                process_group=0,
            )
        self._running[begun] = _Running(process, log, folder, mark)

    def wait(self) -> None:
        """Return when a round may have ended, or soon."""
        time.sleep(POLL_SECONDS)

    def ended(self) -> dict[Round, End]:
        """Return the rounds that ended by themselves since the last call."""
        done = [one for one, its in self._running.items() if its.process.poll() is not None]
        return {one: self._close(one) for one in done}

    def kill(self, late: Round) -> End:
        """End a round that hangs. Let its processes write their tracebacks first."""
        return self._end(late, signal.SIGABRT)

    def stop(self, running: Round) -> End:
        """End a round whose time is over."""
        return self._end(running, signal.SIGTERM)

    def _end(self, running: Round, number: signal.Signals) -> End:
        process = self._running[running].process
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                pass  # _close() kills it
        return self._close(running)

    def _close(self, done: Round) -> End:
        its = self._running.pop(done)
        try:
            os.killpg(its.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # its whole group has ended
        code = its.process.wait()
        _kill_marked(its.mark)
        with open(its.log, "rb") as file:
            file.seek(max(0, its.log.stat().st_size - OUTPUT_BYTES))
            output = file.read().decode(errors="replace")
        return End(code, output, its.log, its.folder)


def forget(end: End) -> None:
    """Delete what a round that did not fail has left."""
    end.log.unlink()
    shutil.rmtree(end.folder, ignore_errors=True)


def _kill_marked(mark: str) -> None:
    """Kill the processes whose environment has this mark."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass  # it has ended, or belongs to another user
