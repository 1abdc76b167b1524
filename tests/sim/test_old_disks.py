"""Disks of simulated storage nodes go back in time, on both kinds of disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from neo.protocol.enums import ClusterState
from neo.protocol.packets import SetClusterState
from tests.sim.writing import Counter
from tests.simulator.alarm import alarmed
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.disk import DISKS
from tests.simulator.history import History
from tests.simulator.old_disks import OldDisks, watched_comparisons
from tests.simulator.operator import Operator
from tests.simulator.replicas import check_replicas
from tests.simulator.run import Options
from tests.simulator.trial import attempt
from tests.simulator.world import Violation, World
from tests.simulator.zodb_world import simulated_zodb

SECONDS = 60.0


class Old:
    """Two nodes with copies of one partition, and a client that writes."""

    def __init__(self, disk: str) -> None:
        self.world = world = World(0)
        self.cluster = Cluster(world, Shape(2, 1, 1), lambda name: DISKS[disk](world, name))
        self.operator = Operator(self.cluster, Random(0), History(world), rewindable=False)
        self.disks = OldDisks(self.cluster, self.operator, Random(1))

    @contextmanager
    def serving(self) -> Iterator[Counter]:
        with alarmed(self.world), simulated_zodb(self.cluster.threads):
            self.cluster.start()
            writer = Counter(self.cluster)
            try:
                writer.wait_commits(5)
                yield writer
            finally:
                writer.kill()
                for disk in self.cluster.disks.values():
                    disk.close()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        self.world.run_until(condition, SECONDS, what)

    @property
    def found(self) -> bool:
        master = self.cluster.master_core
        return master is not None and any(
            row[2] == "behind" for row in master.checks.report().row_list
        )

    def check(self) -> None:
        master = self.cluster.master_core
        assert master is not None
        check_replicas(master, [(n, disk.tables()) for n, disk in self.cluster.disks.items()])


@pytest.mark.parametrize("disk", sorted(DISKS))
@pytest.mark.parametrize("kind", ["old_disk", "lost_tail", "gap"])
def test_it_is_found_and_catches_up_while_a_client_writes(disk: str, kind: str) -> None:
    old = Old(disk)
    with old.serving() as writer:
        getattr(old.disks, kind)()
        old.wait(lambda: old.disks.begun, "a disk goes back")
        old.wait(lambda: old.found, "it is found")
        writer.wait_commits(2)
        old.wait(lambda: old.operator.settled, "all cells are complete")
        writer.end()
        old.world.run(5.0)
        old.check()


@pytest.mark.parametrize("disk", sorted(DISKS))
def test_without_a_sound_copy_nobody_is_served_before_the_operator_decides(disk: str) -> None:
    """Each disk lost a part of the history that the other disk has."""
    old = Old(disk)
    cluster = old.cluster
    with old.serving() as writer:
        writer.wait_commits(10)
        struck = [*cluster.storages, cluster.master]
        for process in struck:
            process.kill()
        tids = sorted({row[1] for row in cluster.disks["storage1"].tables()["trans"]})
        for number, mount in enumerate(cluster.mounts):
            mount.disk.lose(tids[-4 + number], tids[-4 + number])
        for process in struck:
            process.revive()

        def waits() -> bool:
            master = cluster.master_core
            return master is not None and master.comparison.disagreement is not None

        old.wait(waits, "the copies are compared")
        old.world.run(SECONDS)
        master = cluster.master_core
        assert master is not None and master.cluster.state is ClusterState.RECOVERING and waits()
        cluster.storages[0].held = True
        cluster.storages[0].kill()
        # Until then the master refuses.
        here = master.cluster.identified_storages
        old.wait(lambda: len(here()) == 1, "the master knows that it is gone")
        old.operator.command(SetClusterState(ClusterState.VERIFYING), lambda answer: None)

        def serves() -> bool:
            core = cluster.master_core
            return core is not None and core.cluster.state is ClusterState.RUNNING

        old.wait(serves, "the other one serves")
        cluster.storages[0].held = False
        cluster.storages[0].revive()
        old.wait(lambda: old.operator.settled, "it becomes a copy")
        writer.end()
        old.world.run(5.0)
        old.check()


def test_a_master_that_finds_sound_copies_to_differ_is_a_failure() -> None:
    """The copies differ, and the oracle does not know of the fault."""
    old = Old("memory")
    with old.serving(), watched_comparisons(old.world, lambda: False):
        old.disks.gap()
        with pytest.raises(Violation, match="sound copies are found to differ"):
            old.wait(lambda: old.found, "it is found")


def test_seeds_with_old_disks_find_nothing_in_right_code() -> None:
    options = Options(
        seconds=5.0,
        faults=("old-disk", "lost-tail", "gap"),
        workloads=("bank", "increments"),
        storages=3,
        replicas=1,
        backup=False,
        masters=1,
    )
    for seed in range(4):
        trial = attempt(seed, options, twice=False)
        assert trial.result is not None, trial.report(50)


@pytest.mark.parametrize("seed", [22, 135, 176, 188])
def test_what_is_prepared_survives_a_disk_that_lost_its_mark(seed: int) -> None:
    """Specification 24.40. In these seeds one disk lost marks that had been acknowledged; the planted bug
    ``lost-mark-is-believed`` looks for others."""
    options = Options(
        seconds=10.0,
        faults=("old-disk", "lost-tail", "gap"),
        workloads=("prepared",),
        disk="memory",
        storages=3,
        replicas=1,
        backup=False,
        masters=1,
    )
    trial = attempt(seed, options, twice=False)
    assert trial.result is not None, trial.report(50)
