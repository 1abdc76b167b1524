"""Run ``neoctl`` as an operator does, as a process, and wait for what it shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

#: Long enough for a machine that runs other tests, too.
DEADLINE_SECONDS = 90
LOOK_SECONDS = 0.1


def neoctl(admin: str, *words: str) -> Any:
    """Return the output of ``neoctl --json``. Raise AssertionError if it refuses."""
    done = subprocess.run(
        [sys.executable, "-m", "neoctl", "-a", admin, "--json", *words],
        capture_output=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, f"neoctl {' '.join(words)}: {done.stdout!r} {done.stderr!r}"
    return json.loads(done.stdout)


def findings(admin: str, *which: str) -> Counter[str]:
    """Run ``neoctl check`` to its end. Return the number of partitions with each finding."""
    neoctl(admin, "check", *which)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        rows = neoctl(admin, "print", "check")["partitions"]
        found = Counter(row["finding"] for row in rows)
        if not found["running"]:
            print(rows)
            return found
        assert time.monotonic() < deadline, f"the check does not end: {rows}"
        time.sleep(LOOK_SECONDS)


def wait_for(condition: Callable[[], Any], what: Callable[[], str]) -> Any:
    """Wait until there is an answer that is true, and return it. ``what`` says what is missing."""
    deadline, failed = time.monotonic() + DEADLINE_SECONDS, ""
    while True:
        try:
            if found := condition():
                return found
        except AssertionError as e:  # no master at this moment
            failed = f": {e}"
        assert time.monotonic() < deadline, f"{what()}{failed}"
        time.sleep(LOOK_SECONDS)  # between two questions to the processes, which nothing else tells of
