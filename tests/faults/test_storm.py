"""Everything fails at random under a mixed load: see :mod:`tests.faults.storm`.

``NEO_STORM_SECONDS``, ``NEO_STORM_SEED`` and ``NEO_STORM_BACKEND`` choose a longer run, repeat one, or
run on MariaDB.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.faults.storm import command

SECONDS = float(os.environ.get("NEO_STORM_SECONDS", "40"))
SEED = os.environ.get("NEO_STORM_SEED")
BACKEND = os.environ.get("NEO_STORM_BACKEND", "sqlite")
#: What faults that last, and the time to recover from them, may add.
LIMIT_SECONDS = 2 * SECONDS + 400


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_nothing_acknowledged_is_lost_and_replicas_are_equal_after_a_storm(tmp_path: Path) -> None:
    seed = int(SEED) if SEED else random.SystemRandom().randrange(2**32)
    print(f"NEO_STORM_SEED={seed} NEO_STORM_SECONDS={SECONDS:g} NEO_STORM_BACKEND={BACKEND}")
    done = subprocess.run(
        command(tmp_path, BACKEND, SECONDS, seed),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    print(done.stdout)
    assert done.returncode == 0
    assert "longest time without a commit" in done.stdout
