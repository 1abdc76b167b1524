"""Oracle: storage nodes and clients never see two primary masters, nor an older partition table.

A *reign* is the life of one :class:`~neo.master.primary.PrimaryMaster` among several masters. Every
message that it sends to a storage node or a client is an act of a primary, be it a table, a lock or an
acknowledged commit. The time of an act is that of the world. The acts of two reigns must not overlap,
whatever the clocks of the masters show. Each epoch has one process. The partition table of an act must
be in the log, and must not be older than the table of an earlier act.
"""

from __future__ import annotations

from dataclasses import dataclass

from neo.master.election.node import MasterNode
from neo.master.primary import PrimaryMaster
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, NodeType
from tests.simulator.log_watch import LogWatch
from tests.simulator.process import Process
from tests.simulator.world import Violation, World


@dataclass
class Reign:
    process: Process
    #: The life of the process: in its next life the master has forgotten everything.
    life: int
    epoch: int
    first: float
    last: float
    #: Whether it recovers, or was told to stop while it did: its partition table is not in use.
    recovers: bool = False

    def __str__(self) -> str:
        return (
            f"{self.process.name} in epoch {self.epoch}, from {self.first:.4f} to {self.last:.4f}"
        )


class Reigns:
    """The reigns of the masters of one cluster."""

    def __init__(self, world: World, processes: list[Process], log: LogWatch) -> None:
        self._world = world
        self._processes = processes
        self._log = log
        self._reigns: dict[PrimaryMaster, Reign] = {}
        self._newest: Reign | None = None
        #: The greatest ptid of an act, and the number of tables that had been given up by then.
        self._ptid = -1
        self._forgotten = 0

    def begins(self, process: Process, primary: PrimaryMaster) -> None:
        """Record that a master has become the primary."""
        assert primary.tenure is not None
        self._world.log(process.name, f"is the primary of epoch {primary.tenure.epoch}")
        self._check_others(process)

    def writes(self, process: Process, peer: Peer) -> None:
        """Check a message that a process sends to a peer."""
        primary = peer.core
        if not isinstance(primary, PrimaryMaster) or primary.tenure is None or peer.node is None:
            return
        if peer.node.type not in (NodeType.STORAGE, NodeType.CLIENT):
            return
        now = self._world.now
        reign = self._reigns.get(primary)
        if reign is None:
            reign = Reign(process, process.lives, primary.tenure.epoch, now, now)
            self._begins(reign)
            self._reigns[primary] = self._newest = reign
        elif reign is not self._newest:
            self._fail(f"{reign} acts again, after {self._newest}")
        reign.last = now
        self._check_others(process)
        self._check_table(reign, primary)

    def _begins(self, reign: Reign) -> None:
        before = self._newest
        if before is None or reign.epoch > before.epoch:
            return
        if (reign.epoch, reign.process, reign.life) != (before.epoch, before.process, before.life):
            self._fail(f"{reign} acts, after {before}")

    def _check_others(self, process: Process) -> None:
        """Check that no other process could act now, by its own clock and lease."""
        for other in self._processes:
            if other is not process and (epoch := _may_act(other)) is not None:
                self._fail(f"{process.name} acts while {other.name} may act in epoch {epoch}")

    def _check_table(self, reign: Reign, primary: PrimaryMaster) -> None:
        ptid = primary.partitions.ptid
        if primary.cluster.state is not ClusterState.STOPPING:
            reign.recovers = primary.cluster.state is ClusterState.RECOVERING
        if ptid is None or reign.recovers:
            return
        if self._log.forgotten != self._forgotten:
            self._forgotten, self._ptid = self._log.forgotten, -1
        if ptid < self._ptid:
            self._fail(f"{reign} has partition table {ptid}, and {self._ptid} was in use before")
        logged = self._log.epochs.ptid
        if logged is None or ptid > logged:
            self._fail(f"{reign} tells of partition table {ptid}, and the log only of {logged}")
        self._ptid = ptid

    def _fail(self, text: str) -> None:
        self._world.fail(Violation(f"at {self._world.now:.4f}: {text}"))


def _may_act(process: Process) -> int | None:
    """Return the epoch in which this process would act now, even if it is stopped, or None."""
    core = process.core
    candidate = core.candidate if isinstance(core, MasterNode) else None
    if candidate is None or candidate.tenure is None:
        return None
    lease, tenure = candidate.election.lease, candidate.tenure
    if lease is None or tenure.over or lease.epoch != tenure.epoch:
        return None
    return tenure.epoch if lease.left(candidate.host.monotonic()) > 0 else None
