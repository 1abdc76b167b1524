"""Oracle: a command that is refused changed nothing; and what a truncation is asked to take away, or a
start without nodes that are lost.

A command does all that it does at once, or begins it, when the master takes it. So the master is the
same before and after a refusal, whatever the arguments were.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neo.master.commit.coordinator import Coordinator
from neo.master.core import MasterCore
from neo.master.phases import verification
from neo.master.serving.admin import ServeAdmin
from neo.node.handler import Method
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import Message, SetClusterState, Truncate
from tests.simulator.canaries.base import Patch, plant
from tests.simulator.history import History
from tests.simulator.world import Violation


@contextmanager
def watched_administration(history: History) -> Iterator[None]:
    """Inside the block, the world fails at a refusal with consequences."""
    original, last_ids, lock = ServeAdmin.method, verification._last_ids, Coordinator.lock
    #: By cluster, whom it was started without. The master that was told so may be lost at once, when its
    #: table is known to storage nodes already: then the next one gives them up.
    forced: dict[str, set[int]] = {}
    #: By cluster, the greatest tid that a master gave: more than anybody heard of.
    given: dict[str, bytes] = {}

    def method(self: ServeAdmin, kind: type[Message]) -> Method | None:
        command = original(self, kind)
        if command is None:
            return None

        def watched(peer: Peer, message_id: int, message: Message) -> Message | None:
            master = self.master
            before, lost = _state(master), _lost(master)
            try:
                answer = command(peer, message_id, message)
            except ErrorAnswer as e:
                if _state(master) != before:
                    history.world.fail(Violation(f"{message} was refused ({e}), and changed this"))
                raise
            if message == SetClusterState(ClusterState.VERIFYING) and lost:
                forced[master.cluster] = lost
            if isinstance(message, Truncate):
                history.truncated(message.tid, master.tids.last)
            return answer

        return watched

    async def verified(master: MasterCore) -> None:
        await last_ids(master)
        lost = forced.pop(master.cluster, set())
        if lost - master.partitions.nodes(readable_only=True):
            history.given_up(master.last_tid, given.get(master.cluster, ZERO_TID))

    def locked(self: Coordinator, *arguments: Any) -> bytes:
        tid = lock(self, *arguments)
        cluster = self.master.cluster
        given[cluster] = max(given.get(cluster, tid), tid)
        return tid

    patches: list[Patch] = [
        (ServeAdmin, "method", method),
        (verification, "_last_ids", verified),
        (Coordinator, "lock", locked),
    ]
    with plant(patches):
        yield


def _lost(master: MasterCore) -> set[int]:
    """Nodes that may have transactions which nobody else has."""
    return master.partitions.nodes(readable_only=True) - master.identified_storages()


def _state(master: MasterCore) -> tuple[Any, ...]:
    """All that a command can change."""
    table = master.partitions
    return (
        master.state,
        master.truncate_tid,
        (table.ptid, table.replicas, table.row_list()),
        [node.row() for node in master.nodes],
        sorted(master.connected),
        sorted(master.starting),
        sorted(master.ready),
        master.coordinator.transactions.ttids(),
    )
