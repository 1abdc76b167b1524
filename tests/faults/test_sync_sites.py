"""Two sites, of which one is the synchronous backup of the other: :mod:`tests.faults.sync_sites`.

``NEO_SYNC_ROUNDS``, ``NEO_SYNC_FAULTS``, ``NEO_SYNC_MASTERS`` and ``NEO_SYNC_SEED`` choose a longer run,
or repeat one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.faults.script import passes
from tests.faults.sync_sites import FAULTS, command
from tests.support.seeds import seed

ROUNDS = int(os.environ.get("NEO_SYNC_ROUNDS", "2"))
STRIKES = min(int(os.environ.get("NEO_SYNC_FAULTS", "2")), len(FAULTS))
MASTERS = int(os.environ.get("NEO_SYNC_MASTERS", "1"))
#: A round takes 4 seconds, a fault 10, on a machine that does nothing else.
LIMIT_SECONDS = 30 * (ROUNDS + STRIKES) + 200


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_nothing_acknowledged_is_lost_with_the_whole_site_and_commits_go_on_without_the_other(
    tmp_path: Path,
) -> None:
    """Specification 25.4, 25.5, 25.14, 25.16, 25.25, 25.45."""
    options = [f"--rounds={ROUNDS}", f"--faults={STRIKES}", f"--masters={MASTERS}"]
    said = passes(command(tmp_path, seed("SYNC"), *options), LIMIT_SECONDS)
    found = re.search(r"in (\d+) of them in sync until the end", said)
    assert found is not None and (not ROUNDS or int(found[1]) > 0)


@pytest.mark.timeout(260)
def test_with_the_policy_to_stop_commits_wait_for_the_operator(tmp_path: Path) -> None:
    """Specification 25.16, 25.28, 25.45."""
    passes(command(tmp_path, seed("SYNC"), "--policy=stop"), 200)
