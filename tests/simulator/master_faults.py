"""Faults of several masters: in their processes, links, clocks and the disks of their logs.

They have a separate generator, so that a seed with one master is not changed by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from neo.protocol.enums import NodeState, NodeType
from neo.protocol.packets import AddPendingNodes, Message, SetNodeState, SetPrimary
from tests.simulator.console import Command
from tests.simulator.log_disk import SYNC_SECONDS
from tests.simulator.process import Process

if TYPE_CHECKING:
    from tests.simulator.cluster import Cluster
    from tests.simulator.run import Run

#: Range of the mean time between two faults, and range of a fault's duration: some are longer than a
#: failover, some shorter.
BETWEEN_SECONDS = (0.3, 3.0)
LASTING_SECONDS = (0.05, 8.0)
#: Time for which a cluster stays partitioned.
PARTS_SECONDS = (5.0, 15.0)
#: Greatest latency between two masters, rarely ten times as long: less than the timeouts of progress.
LATENCY_SECONDS_MAX = 0.4
#: Greatest factor by which a sync of a slow disk takes longer.
SLOW_MAX = 500.0
#: Part of the faults that hit the primary.
PRIMARY_CHANCE = 0.6
#: After this time all nodes know that a dead process is down, and requests to the log are executed.
SILENT_SECONDS = 4.0
#: Virtual time within which there is a primary, when nothing fails any more and a majority runs.
PRIMARY_SECONDS = 20.0
#: Virtual time within which every master has the whole log.
EQUAL_SECONDS = 60.0


class MasterFaults:
    """Inject faults from :meth:`start` to :meth:`stop`, if there are several masters."""

    def __init__(self, run: Run, names: Sequence[str] | None) -> None:
        """``names``: the kinds to use, None for a choice of the seed."""
        self._run = run
        self._world = run.world
        self._random = random = Random(f"master faults {run.world.seed}")
        chosen = [name for name in MASTER_KINDS if random.random() < 0.6]
        self._kinds = [
            name for name in (chosen if names is None else names) if name in MASTER_KINDS
        ]
        self._between = random.uniform(*BETWEEN_SECONDS)
        self._active = False
        #: Clusters from which a master is being dropped.
        self._dropping: list[Cluster] = []
        #: By cluster, the hosts on one side of its partition.
        self._sides: dict[str, set[str]] = {}
        #: Masters whose addition (True) or removal was commanded. The log may decide that at any later
        #: moment, or never.
        self._wanted: dict[Process, bool] = {}
        self.injected: dict[str, int] = {}

    def start(self) -> None:
        if len(self._run.masters) > 1:
            self._active = True
            self._plan()

    def stop(self) -> None:
        self._active = False

    def _plan(self) -> None:
        if self._kinds:
            delay = self._random.expovariate(1 / self._between)
            self._world.call_later(delay, self._inject, "master fault")

    def _inject(self) -> None:
        if self._active:
            name = self._random.choice(self._kinds)
            self.injected[name] = self.injected.get(name, 0) + 1
            MASTER_KINDS[name](self, self._random.choice(self._run.clusters))
            self._plan()

    def _later(self, callback: Callable[[], None], name: str) -> None:
        low, high = LASTING_SECONDS
        ratio: float = (high / low) ** self._random.random()
        self._world.call_later(low * ratio, callback, name)

    def _any(self, cluster: Cluster) -> Process:
        if self._random.random() < PRIMARY_CHANCE:
            return cluster.master
        return self._random.choice(cluster.masters.members())

    # -- processes ---------------------------------------------------------------------------------

    def _kill(self, cluster: Cluster) -> None:
        process = self._any(cluster)
        process.kill()
        self._later(process.revive, f"start {process.name}")

    def _end(self, cluster: Cluster) -> None:
        """Send SIGTERM to a master; a supervisor starts it again."""
        process = self._any(cluster)
        self._world.log(process.name, "is told to end")
        process.terminate()

    def _pause(self, cluster: Cluster) -> None:
        process = self._any(cluster)
        process.pause()
        self._later(process.resume, f"resume {process.name}")

    # -- the operator --------------------------------------------------------------------------------

    def _type(self, cluster: Cluster, message: Message) -> None:
        def told(answer: Message | None) -> None:
            name = f"{cluster.site.prefix}operator"
            self._world.log(name, f"{message}: {answer or 'no answer'}")

        Command(cluster, message, told)

    def _nid(self, cluster: Cluster, process: Process, state: NodeState) -> int | None:
        """Return the nid of the process in the node table, if it is in that state, else None."""
        primary = cluster.master_core
        nodes = primary.nodes.of_type(NodeType.MASTER) if primary is not None else []
        found = (
            node.nid for node in nodes if (node.address, node.state) == (process.address, state)
        )
        return next(found, None)

    def _hand_over(self, cluster: Cluster) -> None:
        """Command a hand-over to another primary."""
        nid = self._nid(cluster, self._any(cluster), NodeState.RUNNING)
        if nid is not None:
            self._type(cluster, SetPrimary(nid))

    def _change_masters(self, cluster: Cluster) -> None:
        """Take the next step of the addition or removal of a master."""
        masters = cluster.masters
        members = masters.members()
        others = [process for process in masters.all if process not in members]
        if cluster in self._dropping:
            return
        if not others:
            process = self._random.choice(members)
            if process is not cluster.master:
                self._drop(cluster, process)
            return
        process = self._random.choice(others)
        if not process.alive:
            # The master was no member before, or its folder was moved away.
            masters.platters[process.name].wipe()
            process.start()
        elif (nid := self._nid(cluster, process, NodeState.PENDING)) is not None:
            # The primary refuses a wrong change only if it has noticed which members lost their log.
            if masters.can_go_on([*members, process]):
                self._wanted[process] = True
                self._type(cluster, AddPendingNodes([nid]))

    def _drop(self, cluster: Cluster, process: Process) -> None:
        self._dropping.append(cluster)
        process.kill()

        def drop() -> None:
            if self._active:
                process.kill()
            nid = self._nid(cluster, process, NodeState.DOWN)
            others = [other for other in cluster.masters.members() if other is not process]
            if nid is not None and cluster.masters.can_go_on(others):
                self._wanted[process] = False
                self._type(cluster, SetNodeState(nid, NodeState.UNKNOWN))
            self._world.call_later(SILENT_SECONDS, done, "operator looks")

        def done() -> None:
            self._dropping.remove(cluster)
            if process in cluster.masters.members():
                process.revive()

        self._world.call_later(SILENT_SECONDS, drop, "operator drops")

    # -- network -----------------------------------------------------------------------------------

    def _cut(self, cluster: Cluster) -> None:
        """Cut a master off from nodes of some kind, in one direction or both."""
        master = self._any(cluster)
        masters = [p.host for p in cluster.masters.all if p is not master]
        storages = [p.host for p in cluster.storages]
        clients = [process.host for process in cluster.clients if not process.dead]
        admin = [cluster.admin.host]
        groups = (masters, masters, storages, clients, admin, masters + storages + clients + admin)
        group = self._random.choice(groups)
        hosts = self._random.sample(group, self._random.randint(1, len(group))) if group else []
        away, back = self._random.choice(((True, True), (True, False), (False, True)))
        self._world.log(
            "network", f"{master.host} {'<' * back}-{'>' * away} {','.join(hosts)} is cut"
        )
        for host in hosts:
            if away:
                cluster.network.cut(master.host, host)
            if back:
                cluster.network.cut(host, master.host)
        self._later(cluster.network.heal, "heal network")

    def _part(self, cluster: Cluster) -> None:
        """Cut the cluster into two parts, each with some masters and other nodes."""
        hosts = _hosts(cluster)
        hosts += [process.host for process in cluster.clients if not process.dead]
        side = {host for host in hosts if self._random.random() < 0.5}
        self._world.log("network", f"{','.join(sorted(side))} are cut off")
        for one in hosts:
            for other in hosts:
                if (one in side) != (other in side):
                    cluster.network.cut(one, other)
        self._later(cluster.network.heal, "heal network")

    def _move_parts(self, cluster: Cluster) -> None:
        """Cut the cluster in two for a long time; if it is cut already, move a master to the other
        side."""
        if cluster.site.prefix in self._sides:
            self._change_sides(cluster, self._random.choice(cluster.masters.members()))
            return
        # A single master, perhaps the primary, is alone on its side more often than with others.
        side = {self._any(cluster).host}
        side |= {p.host for p in cluster.masters.members() if self._random.random() < 0.2}
        side |= {p.host for p in cluster.storages if self._random.random() < 0.5}
        self._set_side(cluster, side)
        self._world.call_later(self._random.uniform(*PARTS_SECONDS), self._heal, "heal parts")

    def _change_sides(self, cluster: Cluster, process: Process) -> None:
        side = self._sides.get(cluster.site.prefix)
        if side is not None:
            self._set_side(cluster, side ^ {process.host})

    def _set_side(self, cluster: Cluster, side: set[str]) -> None:
        """Cut these hosts off from all others."""
        self._sides[cluster.site.prefix] = side
        self._world.log("network", f"{','.join(sorted(side))} are one part")
        hosts = _hosts(cluster)
        for one in hosts:
            for other in hosts:
                if (one in side) != (other in side):
                    cluster.network.cut(one, other)
                elif one < other:
                    cluster.network.join(one, other)

    def _heal(self) -> None:
        self._sides.clear()
        self._run.cluster.network.heal()

    def _slow_links(self, cluster: Cluster) -> None:
        """Slow down the links from or to one master."""
        master = self._any(cluster).host
        for process in cluster.masters.all:
            seconds = self._random.uniform(0.001, LATENCY_SECONDS_MAX)
            ends = self._random.choice(((master, process.host), (process.host, master)))
            cluster.network.slow(*ends, seconds)
        self._later(cluster.network.heal, "heal network")

    # -- clocks and disks --------------------------------------------------------------------------

    def _drift(self, cluster: Cluster) -> None:
        for process in cluster.masters.all:
            if process.clock is not None:
                process.clock.turn()

    def _slow_log(self, cluster: Cluster) -> None:
        name, platter = self._random.choice(list(cluster.masters.platters.items()))
        platter.sync_seconds = SYNC_SECONDS * self._random.uniform(2, SLOW_MAX)
        self._later(platter.heal, f"heal log of {name}")

    def _full_log(self, cluster: Cluster) -> None:
        name, platter = self._random.choice(list(cluster.masters.platters.items()))
        self._world.log(name, "the disk of the log is full")
        platter.full = True
        self._later(platter.heal, f"heal log of {name}")

    def _lose_log(self, cluster: Cluster) -> None:
        """Lose the log of one master. Only while a majority still has its promises, and no change of
        the members may be decided any moment."""
        masters, process = cluster.masters, self._any(cluster)
        expendable = masters.expendable() and not self._changing(cluster)
        if process not in masters.forgetful() and not expendable:
            return
        process.kill()
        self._world.log(process.name, "has lost its log")
        masters.platters[process.name].wipe()
        if self._random.random() < 0.5:
            # The new machine may be on the other side.
            self._change_sides(cluster, process)
        self._later(process.revive, f"start {process.name}")

    def _changing(self, cluster: Cluster) -> bool:
        """Return whether a change of the members was commanded and may be decided any moment. That also
        holds when the operator got an error, because the primary was lost."""
        members = cluster.masters.members()
        return any(self._wanted.get(p, p in members) != (p in members) for p in cluster.masters.all)

    # -- progress ----------------------------------------------------------------------------------

    def demand_progress(self) -> None:
        """Raise Violation unless a majority of the masters serves, and then all have the whole log.
        Nothing fails any more, but a minority of the masters may still be away at first."""
        for cluster in self._run.clusters:
            if cluster.masters.several:
                away = self._away(cluster)
                self._world.run_until(
                    lambda c=cluster: c.master_core is not None,
                    PRIMARY_SECONDS,
                    f"a majority of the masters of {cluster.site.cluster} has a primary",
                )
                if cluster is self._run.cluster:
                    cluster.wait_running()
                for process in away:
                    process.revive()
                    process.resume()
                self._world.run_until(
                    cluster.masters.equal, EQUAL_SECONDS, "all masters have the log"
                )

    def _away(self, cluster: Cluster) -> list[Process]:
        """Stop some masters and return them: not more than may fail, counting members that do not vote
        yet. Stop none while a change of the members may be decided: a new member must first learn the
        log from a majority."""
        masters, random = cluster.masters, self._random
        forgetful = masters.forgetful()
        others = [process for process in masters.members() if process not in forgetful]
        away = random.sample(others, random.randint(0, masters.expendable()))
        if self._changing(cluster):
            return []
        for process in away:
            random.choice((process.kill, process.pause))()
        return away


def _hosts(cluster: Cluster) -> list[str]:
    servers = [*cluster.masters.all, *cluster.storages, cluster.admin]
    return [process.host for process in servers]


MASTER_KINDS: dict[str, Callable[[MasterFaults, Cluster], None]] = {
    "kill-master": MasterFaults._kill,
    "end-master": MasterFaults._end,
    "pause-master": MasterFaults._pause,
    "hand-over": MasterFaults._hand_over,
    "change-masters": MasterFaults._change_masters,
    "cut-master": MasterFaults._cut,
    "part-masters": MasterFaults._part,
    "move-parts": MasterFaults._move_parts,
    "slow-masters": MasterFaults._slow_links,
    "drift": MasterFaults._drift,
    "slow-log": MasterFaults._slow_log,
    "full-log": MasterFaults._full_log,
    "lose-log": MasterFaults._lose_log,
}
