"""Monitor the backups of this cluster through their admin nodes (specification 17.23, 17.24).

The admin of a backup connects, reports changes of its cluster, and answers questions about its last tid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from neo.admin.monitor import Health, assess, lag
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Task
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerLastTransaction,
    AnswerRecovery,
    AskLastTransaction,
    AskRecovery,
    NotifyMonitorInformation,
    Request,
    RequestIdentification,
)
from neo.topology.nodes import Node


@dataclass
class Watched:
    """One backup cluster. ``peer``: its admin, while connected. ``tid``: its last tid, None if
    unknown."""

    name: str
    peer: Peer | None = None
    state: ClusterState | None = None
    down: int = 0
    cells: Mapping[CellState, int] = field(default_factory=dict)
    tid: bytes | None = None

    def health(self, last_tid: bytes | None, max_lag: float) -> Health:
        """Return its health. ``last_tid``: of the upstream cluster. ``max_lag``: seconds; more is a
        warning."""
        if self.peer is None:
            return Health(True, False, "not connected: its admin node did not report here")
        behind = lag(self.tid, last_tid)
        problem, warning, parts = assess(self.state, self.cells, self.down)
        if self.tid is not None:
            parts.append(f"ltid={self.tid.hex()}")
        parts.append(f"lag={'?' if behind is None else round(behind, 1)}")
        following = self.state is ClusterState.BACKINGUP and behind is not None
        late = behind is not None and behind > max_lag
        return Health(problem or not following, warning or late, "; ".join(parts))


class Watching:
    """The monitored backups. ``names``: as configured."""

    def __init__(self, names: Iterable[str]) -> None:
        self.backups = {name: Watched(name) for name in names}

    def refresh(self, core: Core) -> list[Task[None]]:
        """Ask each backup for its last tid. AskRecovery is sent only to a
        backup in BACKINGUP, because a recovering master of another implementation crashes on it
        (specification 2.28)."""
        tasks = []
        for watched in self.backups.values():
            if watched.peer is not None:
                if watched.state is ClusterState.BACKINGUP:
                    tasks.append(core.spawn(_ask(watched, watched.peer, AskRecovery())))
                else:
                    watched.tid = None
                tasks.append(core.spawn(_ask(watched, watched.peer, AskLastTransaction())))
        return tasks

    def accept(
        self, peer: Peer, message_id: int, request: RequestIdentification
    ) -> WatchedHandler | None:
        """Accept the admin of a backup and return its handler; None if the backup is not monitored."""
        watched = self.backups.get(request.name)
        if request.node_type is not NodeType.ADMIN or watched is None:
            return None
        if watched.peer is not None:
            watched.peer.close()  # the admin has replaced that connection
        watched.peer, watched.state, watched.tid = peer, None, None
        peer.node = Node(NodeType.ADMIN, None, peer.address, NodeState.RUNNING)
        peer.welcome()
        peer.answer(message_id, AcceptIdentification(NodeType.ADMIN, None, None))
        return WatchedHandler(watched)


async def _ask(
    watched: Watched, peer: Peer, question: Request[AnswerRecovery | AnswerLastTransaction]
) -> None:
    try:
        answer = await peer.ask(question)
    except (ConnectionLost, ErrorAnswer):
        watched.tid = None
        return
    if isinstance(answer, AnswerRecovery):
        watched.tid = answer.backup_tid
    elif watched.tid is None:
        watched.tid = answer.tid  # the cluster has left backup mode


class WatchedHandler(Handler):
    """Handles the messages of the admin of a backup."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def lost(self, peer: Peer, reason: str) -> None:
        if self._watched.peer is peer:
            self._watched.peer = None

    @on(NotifyMonitorInformation)
    def changed(self, peer: Peer, message_id: int, m: NotifyMonitorInformation) -> None:
        """Apply the changes. Unknown keys of another version are ignored."""
        watched, info = self._watched, m.info
        state = info.get("cluster_state")
        if isinstance(state, ClusterState):
            watched.state = state
        down = info.get("down")
        if isinstance(down, int):
            watched.down = down
        cells = info.get("pt_summary")
        if isinstance(cells, dict):
            watched.cells = {k: v for k, v in cells.items() if isinstance(k, CellState)}
