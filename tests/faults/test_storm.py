"""Everything fails at random under a mixed load: see :mod:`tests.faults.storm`.

The seed also chooses the database. ``NEO_STORM_SECONDS``, ``NEO_STORM_SEED`` and ``NEO_STORM_BACKEND``
choose a longer run, repeat one, or run on another database.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.script import passes
from tests.faults.storm import command
from tests.support.seeds import seed

SECONDS = float(os.environ.get("NEO_STORM_SECONDS", "10"))
BACKEND = os.environ.get("NEO_STORM_BACKEND")
#: Includes the time of faults that last longer, and the time to recover from them.
LIMIT_SECONDS = 2 * SECONDS + 400


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_nothing_acknowledged_is_lost_and_replicas_are_equal_after_a_storm(tmp_path: Path) -> None:
    """Specification 23.1, 23.6."""
    number = seed("STORM")
    backend = BACKEND or ("sqlite", "mariadb")[number % 2]
    print(f"NEO_STORM_SECONDS={SECONDS:g} NEO_STORM_BACKEND={backend}")
    said = passes(command(tmp_path, backend, SECONDS, number), LIMIT_SECONDS)
    assert "longest time without a commit" in said
