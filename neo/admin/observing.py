"""A snapshot of the cluster for programs that watch it (specification 17.35)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from neo.admin.health import Examiner
from neo.admin.monitor import SERVING, count_cells, lag
from neo.admin.primary import Primary, PrimaryLink
from neo.admin.watching import Watching
from neo.node.core import Core
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_CACHES,
    FEATURE_OURS,
    AnswerMonitorInformation,
    AskClientCaches,
    AskContents,
    AskLastTransaction,
    AskNodeDisks,
    AskTransactions,
    CacheRow,
    ContentRow,
    NodeDisksRow,
    TransactionRow,
)


class Snapshot(NamedTuple):
    """A cluster as its admin node sees it."""

    #: Node id of the primary master; None if this node is not connected to it, and all else is empty.
    primary: int | None = None
    state: ClusterState | None = None
    nodes: Counter[tuple[NodeType, NodeState]] = Counter()
    cells: Counter[CellState] = Counter()
    partitions: int = 0
    replicas: int = 0
    last_tid: bytes | None = None
    #: Names of clusters: None for this one, others for its backups.
    warnings: list[str | None] = []
    problems: list[str | None] = []
    summary: str = "not connected to a primary master"
    contents: list[ContentRow] = []
    disks: list[NodeDisksRow] = []
    transactions: list[TransactionRow] = []
    caches: list[CacheRow] = []
    #: Seconds by which each watched backup is behind; None if that is unknown.
    lags: dict[str, float | None] = {}

    @property
    def ready(self) -> bool:
        """Whether applications are served."""
        return self.state in SERVING


#: Called with the snapshot, on the loop's thread.
Done = Callable[[Snapshot], None]


class Observer:
    def __init__(
        self, node: Core, link: PrimaryLink, examiner: Examiner, watching: Watching
    ) -> None:
        self._node = node
        self._link = link
        self._examiner = examiner
        self._watching = watching

    def observe(self, done: Done) -> None:
        """Ask what the mirror does not have, then call ``done``. It is called in any case."""
        self._examiner.examine(lambda health: self._examined(health, done))

    def _examined(self, health: AnswerMonitorInformation | None, done: Done) -> None:
        primary = self._link.primary
        if health is None or primary is None:
            done(Snapshot())
        else:
            self._node.spawn(self._ask(primary, health, done))

    async def _ask(self, primary: Primary, health: AnswerMonitorInformation, done: Done) -> None:
        peer = primary.peer
        ours = FEATURE_OURS in primary.features
        ask_tid = peer.ask(AskLastTransaction())
        ask_contents = peer.ask(AskContents()) if ours else None
        ask_disks = peer.ask(AskNodeDisks()) if ours else None
        ask_caches = peer.ask(AskClientCaches()) if FEATURE_CACHES in primary.features else None
        ask_transactions = peer.ask(AskTransactions()) if ours and primary.state in SERVING else None
        try:
            last_tid = (await ask_tid).tid
            contents = [] if ask_contents is None else (await ask_contents).row_list
            disks = [] if ask_disks is None else (await ask_disks).row_list
            transactions = [] if ask_transactions is None else (await ask_transactions).row_list
            caches = [] if ask_caches is None else (await ask_caches).row_list
        except (ConnectionLost, ErrorAnswer):
            done(Snapshot())
            return
        partitions, nodes = primary.mirror.partitions, primary.mirror.nodes
        done(
            Snapshot(
                primary=primary.nid,
                state=primary.state,
                nodes=Counter((node.type, node.state) for node in nodes),
                cells=count_cells(partitions),
                partitions=len(partitions),
                replicas=partitions.replicas,
                last_tid=last_tid,
                warnings=health.warning_list,
                problems=health.problem_list,
                summary=health.summary,
                contents=contents,
                disks=disks,
                transactions=transactions,
                caches=caches,
                lags={
                    name: lag(watched.tid, last_tid) for name, watched in self._watching.backups.items()
                },
            )
        )
