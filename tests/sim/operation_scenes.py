"""States with a node that is not used yet, or on its way, in which ``neoctl status`` has an advice."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from neo.operations.engine import PAUSE_SECONDS
from neo.protocol.packets import AskBeginOperation
from neo.storage.node import StorageNode
from neo.storage.operations.backup import COPY
from tests.sim.advice import Stage, write
from tests.sim.stubborn import Stubborn

MEND = "mend what it says; if you have put the node in order by hand: neoctl forget_operation … …"


def spare() -> Stage:
    """One more storage node than at the creation of the database."""
    stage = Stage(2, 4).begin(1)
    stage.spare.pop().start()
    stage.world.run(2.0)
    return stage


def spare_and_down() -> Stage:
    stage = Stage(3, 4, 1).begin(2)
    stage.spare.pop().start()
    stage.world.run(2.0)
    return stage.lose(stage.cluster.storages[1])


def spare_and_two_down() -> Stage:
    stage = Stage(4, 4, 2).begin(3)
    stage.spare.pop().start()
    stage.world.run(2.0)
    return stage.lose(*stage.cluster.storages[1:3])


def spare_and_copying() -> Stage:
    stage = Stage(3, 4, 1).begin(2)
    one, two = stage.cluster.storages[:2]
    stage.lose(two)
    write(stage, "own")
    stage.cut(one, two)
    stage.cut(two, one)
    two.start()
    stage.spare.pop().start()
    stage.world.run(3.0)
    return stage


def moving() -> Stage:
    """A node is being replaced, and the new one is lost."""
    stage = Stage(3, 4, 1).begin(2)
    one, two, three = stage.cluster.storages
    stage.spare.pop().start()
    stage.world.run(2.0)
    for node in (one, two):  # so that nothing is copied
        stage.cut(node, three)
        stage.cut(three, node)
    stage.admin.ask(AskBeginOperation("replace", {"old": 1, "new": 3}, False))
    stage.world.run(2.0)
    return stage.lose(three)


def not_undone() -> Stage:
    """A backup fails, and cannot remove its files on one node."""
    stage = Stage(2, 4)
    stage.cluster.start()
    write(stage, "own")
    core = stage.cluster.storages[0].core
    assert isinstance(core, StorageNode)
    stage.stubborn = Stubborn()
    core.operations.register(COPY, stage.stubborn)
    with TemporaryDirectory() as folder:
        stage.admin.ask(AskBeginOperation("backup", {"path": folder}, False))
        stage.world.run(5.0)
    return stage


def mend_step(stage: Stage) -> None:
    assert stage.stubborn is not None
    stage.stubborn.mended = True
    stage.world.run(PAUSE_SECONDS[1])


def undoing() -> Stage:
    stage = moving()
    (row,) = stage.neoctl("print operations").data["operations"]
    stage.neoctl(f"abort {row['id']}")
    stage.world.run(1.0)
    return stage
