"""What goes wrong with several masters: their processes, links, clocks and the disks of their logs.

Random numbers of their own: with one master, a seed leads to what it led to before there were several.
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

#: Mean time between two of them, and how long one lasts: longer than a failover takes, or shorter.
BETWEEN_SECONDS = (0.3, 3.0)
LASTING_SECONDS = (0.05, 8.0)
#: How long a cluster stays in two parts.
PARTS_SECONDS = (5.0, 15.0)
#: From one master to another, seldom ten times as long: less than what progress is waited for.
LATENCY_SECONDS_MAX = 0.4
#: A sync of a slow disk takes so many times as long.
SLOW_MAX = 500.0
#: How often a fault is about the primary.
PRIMARY_CHANCE = 0.6
#: Whoever is dead for so long is down for everybody, and what was asked of the log is there.
SILENT_SECONDS = 4.0
#: When nothing fails any more and a majority is there, somebody is primary within this virtual time.
PRIMARY_SECONDS = 20.0
#: Every master has the whole log within this virtual time.
EQUAL_SECONDS = 60.0


class MasterFaults:
    """Injects faults from :meth:`start` to :meth:`stop`, if there are several masters."""

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
        #: Clusters that a master is being dropped from.
        self._dropping: list[Cluster] = []
        #: By cluster: hosts of one of its parts.
        self._sides: dict[str, set[str]] = {}
        #: Masters that were asked to be added (True) or dropped: that may be decided at any later moment,
        #: or never.
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
        """SIGTERM; a supervisor starts it again."""
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
        """As the operator sees it in the node table, if the process is in that state."""
        primary = cluster.master_core
        nodes = primary.nodes.of_type(NodeType.MASTER) if primary is not None else []
        found = (
            node.nid for node in nodes if (node.address, node.state) == (process.address, state)
        )
        return next(found, None)

    def _hand_over(self, cluster: Cluster) -> None:
        """Another primary is wanted."""
        nid = self._nid(cluster, self._any(cluster), NodeState.RUNNING)
        if nid is not None:
            self._type(cluster, SetPrimary(nid))

    def _change_masters(self, cluster: Cluster) -> None:
        """The next step of adding or dropping one."""
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
            # It has not been a member, or its folder was set aside.
            masters.platters[process.name].wipe()
            process.start()
        elif (nid := self._nid(cluster, process, NodeState.PENDING)) is not None:
            # The primary refuses what is wrong, as far as it has noticed who lost a log.
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
        """A master from others of some kind, one way or both."""
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
        """Two groups of masters, with what is on either side."""
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
        """Two parts for a long time; when there are already two, a master changes sides."""
        if cluster.site.prefix in self._sides:
            self._change_sides(cluster, self._random.choice(cluster.masters.members()))
            return
        # One master, the primary perhaps, is more often alone than with others.
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
        """These hosts, and all others, are cut off from each other."""
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
        """From one master, or to it."""
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
        """Of one master, as long as a majority remembers what it promised, and no other list of members
        may be decided any moment."""
        masters, process = cluster.masters, self._any(cluster)
        expendable = masters.expendable() and not self._changing(cluster)
        if process not in masters.forgetful() and not expendable:
            return
        process.kill()
        self._world.log(process.name, "has lost its log")
        masters.platters[process.name].wipe()
        if self._random.random() < 0.5:
            # Its new machine is elsewhere.
            self._change_sides(cluster, process)
        self._later(process.revive, f"start {process.name}")

    def _changing(self, cluster: Cluster) -> bool:
        """Another list of members was asked for, and may be decided any moment: also when the operator
        heard of an error, because the primary was lost."""
        members = cluster.masters.members()
        return any(self._wanted.get(p, p in members) != (p in members) for p in cluster.masters.all)

    # -- progress ----------------------------------------------------------------------------------

    def demand_progress(self) -> None:
        """Nothing fails any more, but a minority of the masters may still be away: the others serve;
        then the log is whole on each. Raises Violation."""
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
        """Who is missing: not more than may be, with those who do not vote yet. Nobody, while it is
        not known whether one more votes, which first has to learn the log of a majority."""
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
