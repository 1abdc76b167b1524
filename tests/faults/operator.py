"""Run ``neoctl`` as an operator does, as a process, and wait for what it shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.patience import wait_until


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

    def over() -> tuple[Counter[str], Any] | None:
        rows = neoctl(admin, "print", "check")["partitions"]
        found = Counter(row["finding"] for row in rows)
        return None if found["running"] else (found, rows)

    found, rows = wait_until(over, "the check does not end")
    print(rows)
    return found


def wait_for(condition: Callable[[], Any], what: Callable[[], str]) -> Any:
    """Wait until there is an answer that is true, and return it. ``what`` says what is missing. Without
    a master at this moment, :func:`neoctl` fails, and is asked again."""
    return wait_until(condition, what, excuses=(AssertionError,))
