"""Run ``python -m tests.simulator`` as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: A run of the command takes some minutes beside other tests, and a quarter of an hour on a slow
#: machine. A test must not wait for ever.
SECONDS_MAX = 2400


def simulate(*arguments: str, hashes: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the command. ``hashes``: the seed of the hashes of strings; no run depends on it."""
    command = [sys.executable, "-m", "tests.simulator", *arguments]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hashes},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        stdout, stderr = process.communicate(timeout=SECONDS_MAX)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # also kills its workers
        process.wait()
        raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def told(run: subprocess.CompletedProcess[str]) -> str:
    """Return the end of the story and the command that replays it, for the message of a failed test."""
    return f"exit code {run.returncode}\n{run.stdout[-8000:]}\n{run.stderr[-2000:]}"
