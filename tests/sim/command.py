"""``python -m neo.sim`` as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: A run of the command takes minutes at most; a test of it must not wait for ever.
SECONDS_MAX = 550


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "neo.sim", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def told(run: subprocess.CompletedProcess[str]) -> str:
    """For the message of a test that fails: the end of the story, and what replays it."""
    return f"exit code {run.returncode}\n{run.stdout[-8000:]}\n{run.stderr[-2000:]}"
