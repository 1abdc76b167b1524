"""Packs: every replica ends packed at the same tid, also replicas that are away when it is asked for.

The master sends a pack to all running storage nodes. Each node remembers durably that it must pack, and
goes on after any interruption (:mod:`neo.storage.maintenance.pack`). When a node joins, it announces up
to which tid it was asked to pack. A node that was asked for less than others is asked when it is ready.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import FEATURE_OURS, AnswerPack, AskPack, NotifyPack

logger = logging.getLogger("neo.master")


class Outcome(NamedTuple):
    """The failures of a pack: why a node was lost, and the Error of a node. Empty texts if it
    succeeded."""

    lost: str
    failure: str


class Packs:
    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core
        #: The greatest pack that storage nodes with cells were asked for, as far as is known.
        self.tid = ZERO_TID
        #: The last pack that backups of this cluster are told of; None if there was none.
        self.announced: bytes | None = None
        #: One pack at a time.
        self.running = False

    def ask(self, peer: Peer, message_id: int, tid: bytes) -> None:
        """Answer AskPack of a client when all storage nodes have packed."""
        if self.running:
            peer.answer(message_id, AnswerPack(False))
            return
        # Later transactions have greater tids, so that all replicas pack the same.
        self._wanted(min(tid, self._cluster.last_tid))
        self._core.spawn(self._answer(peer, message_id))

    def _wanted(self, tid: bytes) -> None:
        """Tell backups of a pack that will be done, whatever happens."""
        if tid > self.tid:
            self.tid = tid
            self.announce(tid)

    def announce(self, tid: bytes) -> None:
        """Tell backups of this cluster, now and when they join, that they must pack, too."""
        self.announced = max(self.announced or tid, tid)
        for peer in self._cluster.of_type(NodeType.CLIENT):
            if peer.node is not None and FEATURE_OURS in peer.node.features:
                peer.send(NotifyPack(tid))

    async def _answer(self, peer: Peer, message_id: int) -> None:
        lost, failure = await self.run(self.tid)
        if lost:
            logger.warning("a storage node was lost during a pack, and packs when it is back: %s", lost)
        if failure:
            peer.refuse(message_id, ErrorCode.NOT_READY, f"pack is not complete: {failure}")
        else:
            peer.answer(message_id, AnswerPack(True))

    async def run(self, tid: bytes) -> Outcome:
        """Pack on all running storage nodes at once."""
        self.running = True
        lost = failure = ""
        try:
            for future in [self._send(storage, tid) for storage in self._cluster.running()]:
                try:
                    await future
                except ConnectionLost as e:
                    lost = lost or str(e)
                except ErrorAnswer as e:
                    failure = failure or str(e)
        finally:
            self.running = False
        return Outcome(lost, failure)

    def _send(self, storage: Peer, tid: bytes) -> Future[AnswerPack]:
        assert storage.node is not None
        storage.node.pack_tid = tid
        return storage.ask(AskPack(tid))

    def ready(self, peer: Peer) -> None:
        """Ask for the last pack a storage node that begins to serve, or the others if only that node was
        asked."""
        node, cluster = peer.node, self._cluster
        assert node is not None and node.nid is not None
        if cluster.partitions.assigned(node.nid):
            # A tid above the last transaction is of no use, and may come from another database.
            self._wanted(min(node.pack_tid, cluster.last_tid))
        for nid in sorted(cluster.ready):
            storage = cluster.connected[nid]
            assert storage.node is not None
            known = storage.node.features
            if FEATURE_OURS in known and storage.node.pack_tid < self.tid:
                logger.info("%r is asked for the pack at %s", storage, self.tid.hex())
                self._send(storage, self.tid).then(_ignore)


def _ignore(answer: Future[AnswerPack]) -> None:
    """The storage node remembers durably that the pack is wanted."""
