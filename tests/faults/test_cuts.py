"""Every subset of three masters and two storage nodes is cut off from the rest:
:mod:`tests.faults.cuts`.

``NEO_CUTS`` and ``NEO_CUTS_SEED`` choose more cuts, or repeat a run.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from tests.faults.cuts import MACHINES, MASTERS, all_cuts, command, split
from tests.faults.reigns import Reign, check_alone, check_commits, check_heard, epochs_of
from tests.faults.script import passes
from tests.support.seeds import seed

COUNT = int(os.environ.get("NEO_CUTS", "4"))
#: A cut takes 15 s, and more if the cluster recovers slowly.
LIMIT_SECONDS = 60 * COUNT + 200


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_two_masters_never_serve_at_once_and_a_majority_does_whatever_is_cut(tmp_path: Path) -> None:
    said = passes(command(tmp_path, seed("CUTS"), COUNT), LIMIT_SECONDS)
    assert "never two at once" in said


def test_two_reigns_at_once_are_seen() -> None:
    check_alone([Reign(0, 2, "master1"), Reign(3, 4, "master2"), Reign(2.5, 2.7, "master1")])
    with pytest.raises(AssertionError, match="master2"):
        check_alone([Reign(0, 2, "master1"), Reign(1.9, 4, "master2")])
    with pytest.raises(AssertionError, match="master2"):
        # Also if another observer saw the first one for a shorter time.
        check_alone([Reign(0, 5, "master1"), Reign(1, 2, "master1"), Reign(3, 4, "master2")])


def log(*lines: tuple[int, str]) -> str:
    """Return a log with these lines. The number is the second of the line's time."""
    return "".join(f"2026-11-21 10:00:{s:02}.000 INFO     neo.x   {text}\n" for s, text in lines)


def second(number: int) -> float:
    return datetime(2026, 11, 21, 10, 0, number).timestamp()


M1 = log((1, "this master is the primary, M1, in epoch 1"), (30, "listening"))
M2 = log((10, "this master is the primary, M2, in epoch 2"))


def test_epochs_are_read_from_the_logs_of_masters() -> None:
    again = log((12, "this master is the primary, M2, in epoch 2"))
    assert epochs_of([M2 + again, M1]) == [(1, second(1), "M1"), (2, second(10), "M2")]


@pytest.mark.parametrize("epoch", [1, 2])
def test_two_masters_of_one_epoch_and_an_old_epoch_that_begins_again_are_seen(epoch: int) -> None:
    wrong = log((20, f"this master is the primary, M3, in epoch {epoch}"))
    with pytest.raises(AssertionError, match=f"epoch {epoch} of M3"):
        epochs_of([M1, M2, wrong])


def test_what_a_storage_node_hears_of_a_primary_after_the_next_one_began_is_seen() -> None:
    epochs = epochs_of([M1, M2])
    right = log((2, "S1 joined the primary master M1 (h:1)"), (3, "cluster state: RUNNING"))
    after = log((12, "lost the primary master M1 (h:1)"), (13, "S1 joined the primary master M2 (h:2)"))
    assert check_heard(epochs, {"storage1": right + after}) == 3
    for late in ("cluster state: VERIFYING", "S1 joined the primary master M1 (h:1)"):
        with pytest.raises(AssertionError, match=f"storage2.*{late[:13]}"):
            check_heard(epochs, {"storage1": right, "storage2": right + log((12, late))})


def test_a_commit_of_a_primary_after_the_next_one_began_is_seen() -> None:
    epochs = epochs_of([M1, M2])
    deaf = log((2, "S1 joined the primary master M1 (h:1)"))
    check_commits(epochs, deaf, second(9))
    check_commits(epochs, deaf + log((12, "S1 joined the primary master M2 (h:2)")), second(11))
    with pytest.raises(AssertionError, match="a commit at"):
        check_commits(epochs, deaf, second(11))


def test_all_splits_are_tried_and_a_majority_of_masters_needs_a_storage_node() -> None:
    splits = [cut for cut in all_cuts() if "|" in cut.what]
    assert len(splits) == 2 ** (len(MACHINES) - 1) - 1
    assert split(["master1", "master2", "storage2"]).serves
    assert not split(MASTERS).serves
    assert not split(["master3", "storage1", "storage2"]).serves
