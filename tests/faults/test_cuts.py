"""Every subset of three masters and two storage nodes is cut off from every other: see
:mod:`tests.faults.cuts`.

``NEO_CUTS`` and ``NEO_CUTS_SEED`` choose more of them, or repeat a run.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.faults.cuts import MACHINES, MASTERS, Reign, all_cuts, check_alone, command, split

COUNT = int(os.environ.get("NEO_CUTS", "4"))
SEED = os.environ.get("NEO_CUTS_SEED")
#: A cut takes 15 s, and more if the cluster needs its time to recover.
LIMIT_SECONDS = 60 * COUNT + 200


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_two_masters_never_serve_at_once_and_a_majority_does_whatever_is_cut(tmp_path: Path) -> None:
    seed = int(SEED) if SEED else random.SystemRandom().randrange(2**32)
    print(f"NEO_CUTS_SEED={seed} NEO_CUTS={COUNT}")
    done = subprocess.run(
        command(tmp_path, seed, COUNT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    print(done.stdout)
    assert done.returncode == 0
    assert "never two at once" in done.stdout


def test_two_reigns_at_once_are_seen() -> None:
    check_alone([Reign(0, 2, "master1"), Reign(3, 4, "master2"), Reign(2.5, 2.7, "master1")])
    with pytest.raises(AssertionError, match="master2"):
        check_alone([Reign(0, 2, "master1"), Reign(1.9, 4, "master2")])


def test_all_splits_are_tried_and_a_majority_of_masters_needs_a_storage_node() -> None:
    splits = [cut for cut in all_cuts() if "|" in cut.what]
    assert len(splits) == 2 ** (len(MACHINES) - 1) - 1
    assert split(["master1", "master2", "storage2"]).serves
    assert not split(MASTERS).serves
    assert not split(["master3", "storage1", "storage2"]).serves
