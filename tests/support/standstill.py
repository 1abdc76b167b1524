"""A process that stands still."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.patience import wait_until

#: In ``stat`` of a thread: stopped; ended, or about to.
_STILL = ("T", "Z", "X")


def stand_still(pid: int) -> None:
    """Stop a process (SIGSTOP). Return when all of its threads stand still: the signal is taken by one of
    them, and on a busy machine the others may do a good deal before it runs."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _stands(pid), f"process {pid} does not stand still")


def _stands(pid: int) -> bool:
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return all(state in _STILL for state in states)
