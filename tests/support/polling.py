"""Wait for conditions that ask an admin node."""

from __future__ import annotations

import time
from collections.abc import Callable

from neo.protocol.errors import ErrorAnswer
from neoctl.client import AdminAway

POLL_SECONDS = 0.02


def becomes_true(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition. Return whether it is true in time. An admin node or a master that does not
    answer yet, or refuses, is asked again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return True
        except (AdminAway, ErrorAnswer):
            pass
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
