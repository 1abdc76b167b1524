"""The admin node: mirrors the tables of the primary master and relays the commands of ``neoctl``.

Theory of operation
-------------------
The workflow :meth:`AdminCore._follow` finds the primary master, mirrors its node table, partition table
and cluster state until the connection ends, and starts again, forever. Questions about these are
answered from the mirror. Commands are forwarded with new message ids, and their answers, including
refusals, are copied back (FACTS 6.1). Without a primary, every question is refused and its connection
closed, so that no peer reads a stale mirror.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from neo.admin.alerts import Alerts
from neo.admin.control import ControlHandler
from neo.admin.monitor import Health, count_cells, count_down, examine
from neo.admin.reporting import Reporter
from neo.admin.watching import Watching
from neo.node.bootstrap import find_primary
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.host import Host
from neo.node.peer import Peer
from neo.node.task import Future, first
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer, PeerError
from neo.protocol.packets import (
    FEATURE_MAINTENANCE,
    FEATURE_STATUS,
    FEATURES,
    Address,
    AnswerClusterState,
    AnswerMonitorInformation,
    AnswerUpstream,
    AskClusterState,
    AskLastTransaction,
    AskRecovery,
    AskUpstream,
    FlushLog,
    NotifyClusterInformation,
    NotifyFeatures,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotifyUpstreamAdmin,
    RequestIdentification,
    SendPartitionTable,
)
from neo.topology.masters import MasterCandidates
from neo.topology.nodes import Node, NodeTable

logger = logging.getLogger("neo.admin")

#: Default lag of a backup that is a warning.
MAX_LAG_SECONDS = 60.0
BACKUP_STATES = (ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
#: Timeout of the answers of backups.
REFRESH_SECONDS = 5.0


class AdminCore(Core):
    """``bind``: this node's address, sent to the master. ``remember``: stores the addresses of all
    masters."""

    must_identify = False

    def __init__(
        self,
        shell: Host,
        cluster: str,
        masters: MasterCandidates,
        bind: Address,
        remember: Callable[[list[Address]], None],
        backups: Sequence[str] = (),
        max_lag: float = MAX_LAG_SECONDS,
    ) -> None:
        """``backups``: names of the backup clusters of this cluster. ``max_lag``: seconds of lag, of
        one of them or of this cluster as a backup, above which there is a warning."""
        super().__init__(shell)
        self.cluster = cluster
        self.masters = masters
        self.remember = remember
        self.primary: Peer | None = None
        self.primary_nid: int | None = None
        self.state: ClusterState | None = None
        #: Extensions that the primary master has announced.
        self.features: frozenset[str] = frozenset()
        self.max_lag = max_lag
        self.watching = Watching(list(backups))
        self.reporter = Reporter(self)
        #: Set by the process if mails are configured.
        self.alerts: Alerts | None = None
        self._bind = bind
        self._nid: int | None = None

    def start(self) -> None:
        super().start()
        self.spawn(self._follow())
        if self.alerts is not None:
            self.alerts.start()

    def stranger_handler(self) -> Handler:
        return ControlHandler(self)

    async def _follow(self) -> None:
        """Stay connected to the primary master until this node stops."""
        while True:
            ended: Future[str] = Future()
            request = RequestIdentification(
                *(NodeType.ADMIN, self._nid, self._bind, self.cluster, None),
                {"backup": list(self.watching.backups), FEATURES: [FEATURE_MAINTENANCE]},
            )
            # Await nothing between the acceptance and the tables, which follow in the same bytes.
            peer, accepted = await find_primary(
                self, self.masters, request, MirrorHandler(self, ended)
            )
            self._nid = accepted.your_nid
            self.nodes = NodeTable()
            self.partitions.clear()
            self.features = frozenset()
            self.primary, self.primary_nid = peer, accepted.nid
            peer.node = Node(
                NodeType.MASTER, accepted.nid, peer.address, NodeState.RUNNING, identified=True
            )
            logger.info("connected to the primary master %r", peer)
            peer.ask(AskClusterState()).then(self._learn_state)
            reason = await ended
            stopping = self.state is ClusterState.STOPPING
            self.primary, self.primary_nid, self.state = None, None, None
            if stopping:
                logger.info("the cluster stops: %r ended", peer)
            else:
                logger.warning("lost the primary master %r: %s", peer, reason)

    def _learn_state(self, answer: Future[AnswerClusterState]) -> None:
        try:
            state = answer.result().state
        except ConnectionLost:
            return  # the handler tells the workflow
        except ErrorAnswer as e:
            logger.error("the primary master does not tell the state of the cluster: %s", e)
            return
        # A state that was notified meanwhile is newer.
        if self.state is None:
            self.state = state
            self.reporter.changed()

    def counts(self) -> tuple[Counter[CellState], int]:
        """Return (cells by state, number of masters and storage nodes that are DOWN)."""
        return count_cells(self.partitions), count_down(self.nodes)

    # -- health ----------------------------------------------------------------------------------

    def examine(self, done: Callable[[AnswerMonitorInformation | None], None]) -> None:
        """Examine this cluster and its backups, then call ``done``; with None if there is no primary
        master."""
        self.spawn(self._examine(done))

    async def _examine(self, done: Callable[[AnswerMonitorInformation | None], None]) -> None:
        primary = self.primary
        if primary is None:
            done(None)
            return
        backup = self.state in BACKUP_STATES
        ask_tid = primary.ask(AskLastTransaction())
        ask_backup = primary.ask(AskRecovery()) if backup else None
        tells = backup and FEATURE_STATUS in self.features
        ask_upstream = primary.ask(AskUpstream()) if tells else None
        refreshed = self.watching.refresh()
        # A backup that does not answer must not block the answer about this cluster.
        limit = self.sleep(REFRESH_SECONDS)
        try:
            last_tid = (await ask_tid).tid
            backup_tid = None if ask_backup is None else (await ask_backup).backup_tid
            unheard = None if ask_upstream is None else await _unheard(ask_upstream)
        except (ConnectionLost, ErrorAnswer) as e:
            logger.info("the primary master does not tell how far it is: %s", e)
            done(None)
            return
        for future in refreshed:
            await first(future, limit)
        done(self._health(last_tid, backup_tid, unheard))

    def _health(
        self, last_tid: bytes, backup_tid: bytes | None, unheard: float | None
    ) -> AnswerMonitorInformation:
        """Return the answer. In its lists, None stands for this cluster among names of backup
        clusters."""
        own = examine(
            *(self.state, self.partitions, self.nodes, last_tid, backup_tid, self.max_lag, unheard)
        )
        healths: dict[str | None, Health] = {None: own}
        for name, watched in self.watching.backups.items():
            healths[name] = watched.health(backup_tid or last_tid, self.max_lag)
        return AnswerMonitorInformation(
            [name for name, health in healths.items() if health.warning and not health.problem],
            [name for name, health in healths.items() if health.problem],
            "\n".join(
                [own.summary]
                + [f"\n{n}\n    {h.summary}" for n, h in healths.items() if n is not None]
            ),
        )


async def _unheard(asked: Future[AnswerUpstream]) -> float | None:
    """Return the seconds since the upstream cluster was heard, None if it is heard or backup mode
    ended."""
    try:
        return (await asked).seconds
    except ErrorAnswer as e:
        if e.code is ErrorCode.DENIED:
            return None
        raise


class MirrorHandler(Handler):
    """Handles the messages of the primary master."""

    def __init__(self, core: AdminCore, ended: Future[str]) -> None:
        self._core = core
        self._ended = ended

    def lost(self, peer: Peer, reason: str) -> None:
        self._ended.resolve(reason)

    @on(NotifyNodeInformation)
    def nodes_changed(self, peer: Peer, message_id: int, message: NotifyNodeInformation) -> None:
        core = self._core
        core.nodes.update(message.timestamp, message.node_list)
        masters = [node.address for node in core.nodes.of_type(NodeType.MASTER) if node.address]
        if core.masters.add(masters):
            core.remember(core.masters.addresses)
        core.reporter.changed()

    @on(SendPartitionTable)
    def table_replaced(self, peer: Peer, message_id: int, message: SendPartitionTable) -> None:
        self._core.partitions.load(message.ptid, message.num_replicas, message.row_list)
        self._core.reporter.changed()

    @on(NotifyPartitionChanges)
    def table_changed(self, peer: Peer, message_id: int, message: NotifyPartitionChanges) -> None:
        partitions = self._core.partitions
        for partition, _, _ in message.cell_list:
            if not 0 <= partition < len(partitions):
                raise PeerError(f"the partition table has {len(partitions)} rows, not {partition}")
        partitions.change(message.ptid, message.num_replicas, message.cell_list)
        self._core.reporter.changed()

    @on(NotifyClusterInformation)
    def state_changed(self, peer: Peer, message_id: int, message: NotifyClusterInformation) -> None:
        self._core.state = message.state
        logger.info("cluster state: %s", message.state.name)
        self._core.reporter.changed()

    @on(NotifyUpstreamAdmin)
    def upstream_admin(self, peer: Peer, message_id: int, message: NotifyUpstreamAdmin) -> None:
        self._core.reporter.upstream(message.address)

    @on(NotifyFeatures)
    def features(self, peer: Peer, message_id: int, message: NotifyFeatures) -> None:
        self._core.features = frozenset(message.features)

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, message: FlushLog) -> None:
        self._core.shell.reopen_logs()
