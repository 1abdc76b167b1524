"""Run ``neoctl`` as an operator does, and wait for what it shows.

It runs in the process of the test: a process of its own takes ten times as long to start as to answer,
and these tests ask all the time. ``tests/tools`` has the processes.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from neoctl.__main__ import main
from tests.support.patience import wait_until


def neoctl(admin: str, *words: str) -> Any:
    """Return the output of ``neoctl --json``. Raise AssertionError if it refuses."""
    told, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(told), redirect_stderr(errors):
        code = main(["-a", admin, "--json", *words])
    assert code == 0, f"neoctl {' '.join(words)}: {told.getvalue()!r} {errors.getvalue()!r}"
    return json.loads(told.getvalue())


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
