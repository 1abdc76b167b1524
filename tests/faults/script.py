"""Tests that are scripts, too: a test runs the script in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def passes(command: Sequence[str], seconds: float) -> str:
    """Run a script, which must end with exit code 0. Return its output, which a failure shows."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds
    )
    print(done.stdout)
    assert done.returncode == 0, f"exit code {done.returncode}; it said at last:\n{done.stdout[-4000:]}"
    return done.stdout
