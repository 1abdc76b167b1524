"""Run a command on a machine that stands still now and then.

``python -m tests.soak.standstills --seed SEED COMMAND...`` stops all processes of the command for some
seconds at random moments, as a machine does that is suspended, moved, or whose disk does not answer. The
clock goes on. Timeouts of the product pass then, and connections are given up; a test that takes success
within a short time for granted fails. Ends with the exit code of the command.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

#: Ranges of the seconds between two standstills, and of what one takes: longer than clients wait for
#: silent nodes, shorter than what tests wait for.
BETWEEN_SECONDS = 6.0, 25.0
STANDS_SECONDS = 2.5, 10.0
#: Looks for processes that were started while others were being stopped. More in a row are not expected.
LOOKS_MAX = 10


def family(pid: int) -> list[int]:
    """Return the ids of a process and of all that come from it and run; not of what somebody stopped,
    which is to stay so."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has just ended
        own = int(path.parent.name)
        states[own] = state
        children.setdefault(int(parent), []).append(own)
    found = [pid]
    for each in found:
        found.extend(children.get(each, ()))
    return [each for each in found if states.get(each, "Z") not in "TtZX"]


def stand_still(pid: int, wait: Callable[[], object]) -> int:
    """Stop a process and all that come from it, wait, and let them go on. Return their number."""
    stopped: list[int] = []
    try:
        for _ in range(LOOKS_MAX):
            running = [each for each in family(pid) if each not in stopped]
            if not running:
                break
            for each in running:
                if _send(each, signal.SIGSTOP):
                    stopped.append(each)
        wait()
    finally:
        for each in reversed(stopped):
            _send(each, signal.SIGCONT)
    return len(stopped)


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def run(command: list[str], random: Random) -> int:
    """Return the exit code of the command."""
    count = 0
    with subprocess.Popen(command) as process:
        try:
            while True:
                try:
                    process.wait(random.uniform(*BETWEEN_SECONDS))
                    break
                except subprocess.TimeoutExpired:
                    seconds = random.uniform(*STANDS_SECONDS)
                    stand_still(process.pid, lambda seconds=seconds: time.sleep(seconds))
                    count += 1
        except BaseException:
            process.kill()
            raise
    print(f"{count} standstills", flush=True)
    return process.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    return run(arguments.command, Random(arguments.seed))


if __name__ == "__main__":
    sys.exit(main())
