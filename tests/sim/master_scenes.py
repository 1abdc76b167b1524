"""States of several masters in which ``neoctl status`` has an advice."""

from __future__ import annotations

from tests.sim.advice import Stage


def masters(count: int, lost: int) -> Stage:
    stage = Stage(1, 4, 0, count)
    stage.cluster.start()
    primary = stage.cluster.master
    others = [process for process in stage.cluster.masters.processes if process is not primary]
    stage.lose(*others[:lost])
    stage.world.run(10.0)
    return stage


def pending_master(lost: int) -> Stage:
    stage = masters(3, lost)
    spare = stage.cluster.masters.spare
    assert spare is not None
    spare.start()
    stage.world.run(5.0)
    return stage


def nameless() -> Stage:
    """Masters of other implementations may have no id."""
    stage = masters(3, 1)
    stage.admin.nameless = True
    return stage


def learning() -> Stage:
    """A master lost its log, and takes a while to learn it."""
    stage = Stage(1, 4, 0, 3)
    stage.cluster.start()
    primary = stage.cluster.master
    one, *others = [p for p in stage.cluster.masters.processes if p is not primary]
    stage.lose(one)
    stage.cluster.masters.platters[one.name].wipe()
    for other in (primary, *others):
        stage.cluster.network.slow(other.host, one.host, 0.3)
    one.start()
    while "not vote yet" not in str(stage.neoctl("print masters").text):
        stage.world.run(0.05)
    return stage
