"""Tests that are scripts as well: a test runs the script in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def passes(command: Sequence[str], seconds: float) -> str:
    """What the script says, which is shown when the test fails. It must end by itself, with 0."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds
    )
    print(done.stdout)
    assert done.returncode == 0
    return done.stdout
