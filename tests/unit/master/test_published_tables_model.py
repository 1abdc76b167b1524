"""Model of a cluster with one partition: no acknowledged commit is lost (decision 6).

A model: nodes with what is on their disks, and a master that decides as ours does. At random, nodes are
lost, come back and write what they were told; copies become complete; the master is restarted. The
operator starts without nodes: what they alone have is given up; they come back while the others serve.
"""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from neo.master.phases.recovery import GIVEN_UP_TABLES, UNKNOWN_TABLES
from neo.master.published_tables import PublishedTables

NODES = (1, 2, 3)


class Node:
    def __init__(self) -> None:
        #: Tables that it was sent, each with the readable nodes; the first one is on its disk.
        self.tables: list[tuple[int, frozenset[int]]] = [(1, frozenset(NODES))]
        self.commits: set[int] = set()
        self.here = True

    def gone(self) -> None:
        self.here = False
        del self.tables[1:]


class Cluster:
    def __init__(
        self, seed: int, guarded: bool = True, moves_at_once: bool = False, clock: bool = True
    ) -> None:
        """``guarded``: the master follows the rule; ``moves_at_once``: it takes a cell from a node in the
        table in which another one becomes readable instead; ``clock``: it numbers tables by the clock
        when nodes are given up."""
        self.random = Random(seed)
        self.guarded = guarded
        self.moves_at_once = moves_at_once
        self.clock = clock
        self.milliseconds = 10**12
        #: The first table after nodes were given up, last.
        self.forced = 0
        self.nodes = {nid: Node() for nid in NODES}
        self.acknowledged: set[int] = set()
        self.last: int | None = None
        self.numbers = count()
        self.restart()
        self.recover()

    # -- the master ----------------------------------------------------------------------------

    def restart(self) -> None:
        self.told = PublishedTables()
        self.served: tuple[int, frozenset[int]] | None = None
        self.readable: frozenset[int] = frozenset()
        self.feeding: frozenset[int] = frozenset()
        self.serving = False
        for node in self.nodes.values():
            if node.tables[0][0] < self.forced:  # the operator lets them come to the others only
                node.gone()

    def present(self) -> set[int]:
        return {nid for nid, node in self.nodes.items() if node.here}

    def recover(self, force: bool = False) -> None:
        present = self.present()
        if not present:
            return
        for nid in present:  # what AskRecovery is answered is durable
            self.nodes[nid].tables = self.nodes[nid].tables[-1:]
        ptid, readable = max(self.nodes[nid].tables[0] for nid in present)
        for nid in present:
            self.told.confirmed(nid, self.nodes[nid].tables[0][0])
        required = readable if self.served is None else readable & present
        given_up: frozenset[int] = frozenset()
        if not self.told.ptid and (force or self.random.random() < 0.2):
            given_up = required - present
            required -= given_up
        if not required or required - present:
            return
        if self.served and ptid < self.served[0] and self.served[1] - present:
            return
        if self.guarded and self.told.missing(present):
            return
        if not self.told.ptid:
            for nid in sorted(readable):
                if self.nodes[nid].tables[0][0] < ptid:
                    self.told.remembered(nid, self.nodes[nid].tables[0][0])
            ptid = self.later(ptid, readable & present, given_up)
        self.serving = True
        for nid in readable & present:
            lost = self.acknowledged - self.nodes[nid].commits
            assert not lost, f"table {ptid} is served without {lost}"
        self.change(readable & present, max(ptid, self.told.ptid) + 1)
        # The cluster does not serve before all connected nodes have confirmed the table.
        for nid in sorted(present):
            if self.random.random() < 0.1:
                self.lose(nid)
            else:
                self.write(nid)

    def later(self, ptid: int, serving: frozenset[int], given_up: frozenset[int]) -> int:
        if not given_up:
            return ptid + UNKNOWN_TABLES
        late = self.clock and self.milliseconds > ptid
        self.forced = ptid = self.milliseconds if late else ptid + GIVEN_UP_TABLES
        for nid in serving:
            self.acknowledged &= self.nodes[nid].commits
        return ptid

    def change(self, readable: frozenset[int], ptid: int | None = None) -> None:
        self.readable = readable
        ptid = ptid or self.told.ptid + 1
        self.told.publish(ptid, readable)
        for nid in self.present():
            self.nodes[nid].tables.append((ptid, readable))

    # -- events ---------------------------------------------------------------------------------

    def lose(self, nid: int | None = None) -> None:
        nid = nid or self.random.choice(NODES)
        self.nodes[nid].gone()
        left = self.readable & self.present()
        if self.serving and (not left or (self.guarded and self.told.missing(self.present()))):
            self.serving = False
        elif self.serving and nid in self.readable:
            self.change(left)

    def come(self) -> None:
        node = self.nodes[self.random.choice(NODES)]
        if not node.here and (self.serving or node.tables[0][0] >= self.forced):
            node.here = True
            if self.serving:
                node.tables.append((self.told.ptid, self.readable))

    def write(self, nid: int | None = None) -> None:
        """Make durable all that a node was sent, and tell the master."""
        nid = nid or self.random.choice(NODES)
        node = self.nodes[nid]
        if node.here and len(node.tables) > 1:
            node.tables = node.tables[-1:]
            self.told.confirmed(nid, node.tables[0][0])

    def contradict(self) -> None:
        """Give up all nodes that went on; a node that was given up before goes on instead of them."""
        for nid, node in self.nodes.items():
            ptid, readable = node.tables[0]
            if ptid < self.forced and nid in readable and len(readable) > 1:
                self.forced = 0
                for other in self.nodes.values():
                    other.gone()
                self.restart()
                node.here = True
                self.recover(force=True)
                break

    def replicate(self, instead: frozenset[int] = frozenset()) -> None:
        nid = self.random.choice(NODES)
        if self.serving and self.nodes[nid].here and nid not in self.readable:
            self.nodes[nid].commits = set(self.nodes[min(self.readable)].commits)
            self.change(self.readable - instead | {nid})

    def move(self) -> None:
        """Move the cell from all readable nodes to another node."""
        self.feeding = self.readable
        self.replicate(self.feeding if self.moves_at_once else frozenset())

    def discard(self) -> None:
        """Take the FEEDING cell away, which is not needed any more."""
        left = self.readable - self.feeding
        if self.serving and self.told.complete and left and left != self.readable:
            self.change(left)

    def commit(self) -> None:
        """Commit a transaction: a node that locks it has the table on its disk."""
        if not self.serving:
            return
        number = next(self.numbers)
        for nid in self.readable:
            node = self.nodes[nid]
            node.tables = node.tables[-1:]
            node.commits.add(number)
            self.told.confirmed(nid, node.tables[0][0])
        if self.told.complete or not self.guarded:
            self.acknowledged.add(number)
            self.last = number
            self.served = (self.told.ptid, self.readable)

    def step(self) -> None:
        self.milliseconds += 10_000
        happenings = [self.lose, self.come, self.come, self.write, self.replicate, self.commit]
        self.random.choice([*happenings, self.move, self.discard])()
        if self.random.random() < 0.05:
            self.restart()
        if self.random.random() < 0.05:
            self.contradict()
        if not self.serving:
            self.recover()


@pytest.mark.parametrize("seed", range(100))
def test_no_acknowledged_commit_is_passed_over(seed: int) -> None:
    """Specification 9.15."""
    cluster = Cluster(seed)
    for _ in range(300):
        cluster.step()
    assert cluster.last is not None


@pytest.mark.parametrize("without", [{"guarded": False}, {"moves_at_once": True}, {"clock": False}])
def test_the_model_finds_what_happens_without_the_rule(without: dict[str, bool]) -> None:
    with pytest.raises(AssertionError, match="is served without"):
        for seed in range(300):
            cluster = Cluster(seed, **without)
            for _ in range(300):
                cluster.step()
