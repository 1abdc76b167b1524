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

from neo.admin.control import NOT_CONNECTED
from neoctl.__main__ import main
from tests.support.patience import wait_until


class _NoMaster(AssertionError):
    """The admin node had no primary master to tell: nothing was done."""


def neoctl(admin: str, *words: str) -> Any:
    """Return the output of ``neoctl --json``. Raise AssertionError if it refuses. On a busy machine the
    admin node may look for the primary master at any moment: try again while it does."""

    def answered() -> tuple[Any]:
        told, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(told), redirect_stderr(errors):
            code = main(["-a", admin, "--json", *words])
        text = f"neoctl {' '.join(words)}: {told.getvalue()!r} {errors.getvalue()!r}"
        if code and NOT_CONNECTED in text:
            raise _NoMaster(text)
        assert code == 0, text
        return (json.loads(told.getvalue()),)

    (answer,) = wait_until(answered, "no primary master", excuses=(_NoMaster,))
    return answer


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
