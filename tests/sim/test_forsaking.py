"""A simulated cluster is started without lost nodes (docs/failures.md), which come back later."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.sim.writing import Counter
from tests.simulator.admin_watch import watched_administration
from tests.simulator.alarm import alarmed
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.disk import DISKS
from tests.simulator.forced_start import AWAY_SECONDS, Forsaking
from tests.simulator.history import History
from tests.simulator.operator import Operator
from tests.simulator.replicas import check_replicas
from tests.simulator.table_watch import check_tables, watched_tables
from tests.simulator.world import World
from tests.simulator.zodb_world import simulated_zodb

SETTLED_SECONDS = 60.0


class Rewound(Counter):
    def check(self, db: Any) -> None:
        """Check nothing: acknowledged transactions may be given up."""
        with db.transaction() as connection:
            assert 0 < connection.root()["value"] < self.commits


@pytest.mark.parametrize("disk", sorted(DISKS))
def test_what_was_given_up_is_nowhere_in_the_end(disk: str) -> None:
    world = World(0)
    cluster = Cluster(world, Shape(2, 2, 1), lambda name: DISKS[disk](world, name))
    history = History(world)
    operator = Operator(cluster, Random(0), history, rewindable=True)
    with (
        alarmed(world), watched_tables(world), watched_administration(history),
        simulated_zodb(cluster.threads),
    ):  # fmt: skip
        cluster.start()
        writer = Rewound(cluster)
        try:
            writer.wait_commits(2)
            operator.settle()
            world.run_until(lambda: operator.settled, SETTLED_SECONDS, "all cells are complete")
            Forsaking(cluster, operator, Random(1), allowed=True).act()
            writer.wait_commits(2)
            world.run(2 * AWAY_SECONDS)
            world.run_until(lambda: operator.settled, SETTLED_SECONDS, "all cells are complete")
            writer.wait_commits(2)
            writer.end()
            world.run(5.0)
            master = cluster.master_core
            assert master is not None
            assert all(len(master.partitions.readable(p)) == 2 for p in range(2))
            check_tables(cluster)
            check_replicas(master, [(n, d.tables()) for n, d in cluster.disks.items()])
        finally:
            writer.kill()
            for each in cluster.disks.values():
                each.close()
