"""``kill -9`` of each process before, in and after each step of operations, and of its undo, with one
master and with three (specification 27.10 to 27.31). ``NEO_WHOLE=1`` plays all cases."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from neo.operations.model import Operation
from neo.protocol.ids import ZERO_TID
from neo.storage.node import StorageNode
from neo.storage.operations.restore import LOAD
from neo.storage.operations.steps import StepFailed, StepFunction
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


class LateUndo:
    """Implements StepFunction: the undo of a step is not possible yet."""

    def __init__(self, step: StepFunction) -> None:
        self._step = step
        self.local, self.prepare, self.run = step.local, step.prepare, step.run
        self.possible = False

    async def undo(self, operation: Operation, undo: bytes) -> None:
        if not self.possible:
            raise StepFailed("its disk is away")
        await self._step.undo(operation, undo)


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


def test_an_undone_restore_leaves_nothing_though_its_rows_could_be_copied_27_66_27_67(
    tmp_path: Path, archive: Archive
) -> None:
    """A node cannot undo its part yet, and a new master learns the last tid from it; the other node has
    undone its part and lacks these rows. When both have, the archive can be restored."""
    with trial("restore", 1, str(tmp_path), archive) as made:
        core = made.cluster.storages[0].core
        assert isinstance(core, StorageNode) and core.cluster.nid is not None
        late = LateUndo(core.operations._runner._functions[LOAD])
        core.operations.register(LOAD, late)
        made.begin()
        made.until(lambda: made.loaded(core), "a node loads")
        made.abort()
        made.until(partial(made.undone, 3 - core.cluster.nid), "the other node has undone its part")
        made.cluster.masters.restart()
        made.world.run(10.0)
        master = made.cluster.master_core
        assert master is not None and master.cluster.last_tid != ZERO_TID
        late.possible = True
        made.wait_over()
        made.judge()
        made.begin()
        made.wait_over()
        made.judge()


def test_each_kind_is_killed(tmp_path: Path) -> None:
    """A new kind needs cases of its own."""
    with trial("backup", 1, str(tmp_path)) as made:
        master = made.cluster.master_core
        assert master is not None
        assert set(master.operations._kinds) == set(STEPS) == {case.kind for case in CHOSEN}
