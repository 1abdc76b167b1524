"""An operator of simulated clusters that runs ``neoctl status`` and follows its advice literally."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import patch

from neo.admin.core import AdminCore
from neo.admin.primary import Primary
from neo.master.settings import SyncPolicy
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import AnswerNodeList, AskPrimary, Error, Message
from neoctl import commands  # noqa: F401  # registers the verbs
from neoctl.client import AdminAway, AdminClient
from neoctl.verbs import Arguments, Reply, find
from tests.sim.stubborn import Stubborn
from tests.sim.writing import Counter
from tests.simulator.cluster import Cluster, Shape, Site
from tests.simulator.console import Command
from tests.simulator.content_volume import File
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.process import Process
from tests.simulator.world import World
from tests.simulator.zodb_world import simulated_zodb

#: Virtual seconds within which an expected state must be reached.
SECONDS = 120.0
#: The placeholder in an advice for a node that the operator chooses.
CHOICE = "NODE"

Data = dict[str, Any]


class SimAdmin:
    """A replacement for AdminClient: each question is one connection to the admin node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Called once, before the next AskPrimary.
        self.before_primary: Callable[[], None] = lambda: None
        #: Whether the masters have no ids.
        self.nameless = False

    def ask(self, message: Message) -> Message:
        if type(message) is AskPrimary:
            before, self.before_primary = self.before_primary, lambda: None
            before()
        heard: list[Message | None] = []
        Command(self._cluster, message, heard.append)
        self._cluster.world.run_until(lambda: bool(heard), SECONDS, "the admin node answers")
        answer = heard[0]
        if answer is None:
            raise AdminAway("the admin node closed the connection, or there was no answer")
        if isinstance(answer, Error) and answer.code != ErrorCode.ACK.value:
            raise ErrorAnswer.of(answer.code, answer.message)
        if self.nameless and isinstance(answer, AnswerNodeList):
            rows = [
                (*row[:2], None, *row[3:]) if row[0] is NodeType.MASTER else row
                for row in answer.node_list
            ]
            return AnswerNodeList(rows)
        return answer


class Stage:
    """A cluster, and the upstream cluster that it follows or shall follow, in one world."""

    def __init__(
        self,
        *shape: int,
        backup: bool = False,
        follows: bool = True,
        sync: SyncPolicy | None = None,
    ) -> None:
        """``shape``: as Shape. ``backup``: the cluster is a backup, at least while ``follows``; a
        synchronous one of an upstream cluster with the policy ``sync``, unless that is None."""
        self.world = World(1)
        self.up: Cluster | None = None
        if backup:
            self.up = self._cluster(Shape(1, shape[1]), Site("upstream", "u-", 100), None)
        self.cluster = self._cluster(Shape(*shape), Site(), self.up)
        self.cluster.upstream = self.up
        self.admin = SimAdmin(self.cluster)
        #: Storage nodes that are not part of the cluster yet.
        self.spare: list[Process] = []
        #: Files of contents that are missing on the first storage node.
        self.moved: dict[str, File] = {}
        #: A step of an operation that cannot be undone.
        self.stubborn: Stubborn | None = None
        if self.up is not None:
            if sync is not None:
                self.cluster.sync, self.up.sync_policy = True, sync
                self.up.sync_backups.append(self.cluster.site.cluster)
            self.up.start()
            self.cluster.start()
            if follows:
                self.wait(ClusterState.RUNNING)  # the admin node knows the state
                self.neoctl("set cluster starting_backup")
                self.wait(ClusterState.BACKINGUP)

    def _cluster(self, shape: Shape, site: Site, beside: Cluster | None) -> Cluster:
        return Cluster(
            self.world, shape, lambda name: MemoryDisk(self.world, name), site=site, beside=beside
        )

    def close(self) -> None:
        for cluster in (self.cluster, self.up):
            for disk in cluster.disks.values() if cluster else ():
                disk.close()

    def go_upstream(self) -> Stage:
        """Let the operator look at the upstream cluster from now on; ``up`` is its backup."""
        assert self.up is not None
        self.cluster, self.up = self.up, self.cluster
        self.admin = SimAdmin(self.cluster)
        return self

    # -- processes -----------------------------------------------------------------------------------

    def start(self, *away: Process) -> Stage:
        """Start all processes except ``away``."""
        for process in self.cluster.servers:
            if process not in away:
                process.start()
        return self

    def begin(self, storages: int) -> Stage:
        """Create a new database on some of the storage nodes; the others are spare."""
        self.spare = self.cluster.storages[storages:]
        self.start(*self.spare)
        self.until(lambda: self.answered(storages), "storage nodes are there")
        self.neoctl("start")
        self.wait(ClusterState.RUNNING)
        return self

    def answered(self, storages: int) -> bool:
        master = self.cluster.master_core
        return (
            master is not None
            and len(master.cluster.identified_storages()) == storages
            and not master.recovery.obstacle_to_force()
            and self.primary is not None
            and self.primary.mirror.nodes.get(storages) is not None
        )

    def lose(self, *processes: Process) -> Stage:
        """Kill processes, and wait until the master and the admin node have noticed."""
        for process in processes:
            process.kill()
        self.world.run(1.0)
        return self

    def restart_master(self) -> Stage:
        self.cluster.masters.restart()
        self.until(lambda: self.state is not None, "the admin node is connected again")
        self.world.run(1.0)
        return self

    def revive(self) -> None:
        """Start every process that does not run, except those that were never part of the cluster."""
        clusters = [self.cluster] if self.up is None else [self.cluster, self.up]
        for process in [process for cluster in clusters for process in cluster.servers]:
            if process not in self.spare:
                process.revive()

    def cut(self, source: Process, target: Process) -> None:
        """Cut the network from ``source`` to ``target``."""
        self.cluster.network.cut(source.host, target.host)

    # -- state ---------------------------------------------------------------------------------------

    @property
    def primary(self) -> Primary | None:
        """The primary master, as the admin node knows it."""
        core = self.cluster.admin.core
        return core.link.primary if isinstance(core, AdminCore) else None

    @property
    def state(self) -> ClusterState | None:
        """Return the state of the cluster that the admin node knows."""
        return None if self.primary is None else self.primary.state

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.world.run_until(condition, SECONDS, what)

    def wait(self, state: ClusterState) -> None:
        self.until(lambda: self.state is state, state.name)

    def whole(self) -> bool:
        master = self.cluster.master_core
        return master is not None and all(
            cell is CellState.UP_TO_DATE for row in master.partitions.rows for cell in row.values()
        )

    # -- neoctl --------------------------------------------------------------------------------------

    def neoctl(self, line: str) -> Reply:
        """Run a command. Raise the error with which neoctl refuses it."""
        found, words = find(line.split())
        master = self.cluster.master_core
        now = time.time() if master is None else master.host.time()
        with patch("neoctl.status.time.time", lambda: now), patch("neoctl.operations.time", self):
            return found.run(cast(AdminClient, self.admin), Arguments(words, False))

    # -- the clock of neoctl

    def sleep(self, seconds: float) -> None:
        self.world.run(seconds)

    def monotonic(self) -> float:
        return self.world.now

    def sync_state(self) -> str:
        """Return the state of the synchronous backup of this cluster, or of this cluster as one."""
        data = self.neoctl("print backups").data
        (row,) = data["backups"] or [data["own"]]
        state: str = row["state"]
        return state

    def problems(self) -> list[Data]:
        problems: list[Data] = self.neoctl("status").data["problems"]
        return problems

    def find(self, advice: str) -> Data:
        """Return the problem that is printed with this advice. ``…`` stands for variable text."""
        pattern = template(advice)
        problems = self.problems()
        found = [problem for problem in problems if pattern.fullmatch(problem["advice"])]
        assert found, f"nothing is advised as {advice!r}, but {problems}"
        return found[0]

    def gone(self, text: str) -> None:
        """Wait until the problem is gone."""
        end, text = self.world.now + SECONDS, _lasting(text)
        while any(_lasting(problem["text"]) == text for problem in self._asked_again(text)):
            assert self.world.now < end, f"still: {text}"
            self.world.run(0.5)

    def _asked_again(self, text: str) -> list[Data]:
        try:
            return self.problems()
        except (AdminAway, ErrorAnswer):
            return [{"text": text}]  # a master is being elected, or starts


def _lasting(text: str) -> str:
    """Return the text of a problem without the seconds for which it has lasted."""
    return re.sub(r"for \d+ s\b", "for some seconds", text)


def write(stage: Stage, cluster: str) -> None:
    """Commit some transactions in the cluster itself (``own``), or in ``up``."""
    target = stage.cluster if cluster == "own" else stage.up
    assert target is not None
    with simulated_zodb(target.threads):
        writer = Counter(target)
        writer.wait_commits(5)
        writer.end()
        writer.kill()


def template(advice: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, advice.split("…"))))


def steps(advice: str) -> tuple[list[str], list[str]]:
    """Return the steps of an advice, and those for the case that it names with 'if'."""
    tokens = re.split(r"[;,:] (?:then:? |and |or )?", advice)
    for index, token in enumerate(tokens):
        if token.startswith("if "):
            return tokens[:index], tokens[index + 1 :]
    return tokens, []
