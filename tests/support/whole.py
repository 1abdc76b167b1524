"""The choice between the values that gate a change and all of them, which the search for bugs runs.

The gate keeps at least one representative of each fault, oracle and backend. ``NEO_WHOLE=1`` runs every
combination.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

#: Whether all combinations run.
WHOLE = bool(os.environ.get("NEO_WHOLE"))


def few(*suite: T, whole: Iterable[T]) -> list[T]:
    """Return the values of the suite, or all of ``whole`` with ``NEO_WHOLE=1``."""
    return list(whole) if WHOLE else list(suite)
