"""Oracle: a refused command changes nothing. Records what a truncation or a forced start gives up.

The master does all of a command at once, or begins it, when it receives the command. So its state is
the same before and after a refusal, whatever the arguments are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neo.master.cluster import Cluster
from neo.master.commit.requests import CommitRequests
from neo.master.commit.transactions import Transactions
from neo.master.phases import verification
from neo.master.serving.admin import ServeAdmin
from neo.node.core import Core
from neo.node.handler import Handler, Method
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import Message, SetClusterState, Truncate
from tests.simulator.history import History
from tests.simulator.planting import Patch, plant
from tests.simulator.world import Violation


@contextmanager
def watched_administration(history: History) -> Iterator[None]:
    """Inside the block, fail the world when a refused command changed something."""
    last_ids, lock = verification._last_ids, CommitRequests.lock
    #: By cluster, the storage nodes without which it was started. The master that was told so may be
    #: lost at once, when storage nodes know its table already: then the next master gives these nodes
    #: up.
    forced: dict[str, set[int]] = {}
    #: By cluster, the greatest tid that a master gave. Other nodes may not know it.
    given: dict[str, bytes] = {}

    def watch(self: ServeAdmin, command: Method) -> Method:
        def watched(peer: Peer, message_id: int, message: Message) -> Message | None:
            cluster, transactions = self._cluster, self._coordinator.transactions
            before, lost = _state(cluster, transactions), _lost(cluster)
            try:
                answer = command(peer, message_id, message)
            except ErrorAnswer as e:
                if _state(cluster, transactions) != before:
                    history.world.fail(Violation(f"{message} was refused ({e}), and changed this"))
                raise
            if message == SetClusterState(ClusterState.VERIFYING) and lost:
                forced[cluster.name] = lost
            if isinstance(message, Truncate):
                history.truncated(message.tid, cluster.tids.last)
            return answer

        return watched

    def watched_table(self: ServeAdmin) -> dict[type[Message], Method]:
        return {kind: watch(self, take) for kind, take in Handler.table.__get__(self).items()}

    async def verified(cluster: Cluster, core: Core) -> None:
        await last_ids(cluster, core)
        lost = forced.pop(cluster.name, set())
        if lost - cluster.partitions.nodes(readable_only=True):
            history.given_up(cluster.last_tid, given.get(cluster.name, ZERO_TID))

    def locked(self: CommitRequests, *arguments: Any) -> bytes:
        tid = lock(self, *arguments)
        cluster = self._cluster.name
        given[cluster] = max(given.get(cluster, tid), tid)
        return tid

    patches: list[Patch] = [
        (ServeAdmin, "table", property(watched_table)),
        (verification, "_last_ids", verified),
        (CommitRequests, "lock", locked),
    ]
    with plant(patches):
        yield


def _lost(cluster: Cluster) -> set[int]:
    """Return the nodes that may have transactions which no other node has."""
    return cluster.partitions.nodes(readable_only=True) - cluster.identified_storages()


def _state(cluster: Cluster, transactions: Transactions[Peer]) -> tuple[Any, ...]:
    """Return all state that a command can change."""
    table = cluster.partitions
    return (
        cluster.state,
        cluster.truncate_tid,
        (table.ptid, table.replicas, table.row_list()),
        [node.row() for node in cluster.nodes],
        sorted(cluster.connected),
        sorted(cluster.starting),
        sorted(cluster.ready),
        transactions.ttids(),
    )
