"""``kill -9`` of each process before, in and after each step of operations, and of its undo, with one
master and with three (specification 27.10 to 27.31). ``NEO_WHOLE=1`` plays all cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.operation_kills import (
    AFTER,
    BEFORE,
    EXECUTOR,
    IN,
    MASTER,
    OTHER,
    STEPS,
    Archive,
    Case,
    cases,
    make_archive,
    play,
    trial,
)
from tests.support.whole import few

CHOSEN = (
    Case("backup", 1, 1, False, IN, EXECUTOR),
    Case("backup", 3, 2, True, BEFORE, MASTER),
    Case("restore", 1, 1, True, IN, OTHER),
    Case("restore", 3, 1, False, AFTER, MASTER),
    Case("replace", 1, 2, False, IN, EXECUTOR),
    Case("replace", 3, 3, True, AFTER, EXECUTOR),
    Case("add", 1, 4, False, BEFORE, MASTER),
    Case("add", 3, 2, True, IN, MASTER),
    Case("remove", 1, 2, False, IN, OTHER),
    Case("upgrade", 1, 0, False, IN, MASTER),
    Case("partitions", 1, 0, True, IN, EXECUTOR),
    Case("partitions", 3, 1, False, IN, MASTER),
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return make_archive(str(tmp_path_factory.mktemp("archive")))


@pytest.mark.parametrize("case", few(*CHOSEN, whole=cases()), ids=str)
def test_all_or_nothing_whatever_is_killed(case: Case, tmp_path: Path, archive: Archive) -> None:
    play(case, str(tmp_path / "copies"), archive)


def test_each_kind_is_killed(tmp_path: Path) -> None:
    """A new kind needs cases of its own."""
    with trial("backup", 1, str(tmp_path)) as made:
        master = made.cluster.master_core
        assert master is not None
        assert set(master.operations._kinds) == set(STEPS) == {case.kind for case in CHOSEN}
