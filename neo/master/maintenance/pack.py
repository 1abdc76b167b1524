"""Packs: every replica ends packed at the same tid, also those that are away when it is asked for.

The master sends a pack to all storage nodes that run. Each remembers durably that it is wanted, and
goes on with it after any interruption (:mod:`neo.storage.maintenance.pack`). A node tells when it joins
up to which tid it was asked to pack; one that has heard less than others is asked again when it is ready.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode, NodeState
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import FEATURE_MAINTENANCE, AnswerPack, AskPack

if TYPE_CHECKING:
    from neo.master.core import MasterCore

logger = logging.getLogger("neo.master")


class Packs:
    def __init__(self, master: MasterCore) -> None:
        self._master = master
        #: The greatest pack that storage nodes with cells were asked for, as far as is known.
        self.tid = ZERO_TID
        #: One pack at a time.
        self.running = False

    def ask(self, peer: Peer, message_id: int, tid: bytes) -> None:
        """AskPack of a client: answered when all storage nodes have done it."""
        master = self._master
        if self.running:
            peer.answer(message_id, AnswerPack(False))
            return
        # What is finished later has a greater tid, so that all replicas pack the same.
        self._wanted(min(tid, master.last_tid))
        self.running = True
        master.spawn(self._run(peer, message_id))

    def _wanted(self, tid: bytes) -> None:
        """It will be done, whatever happens; so backups are told."""
        if tid > self.tid:
            self.tid = tid
            self._master.packed(tid)

    async def _run(self, peer: Peer, message_id: int) -> None:
        master = self._master
        futures = [
            self._send(storage)
            for storage in master.storages()
            if storage.node is not None and storage.node.state is NodeState.RUNNING
        ]
        failure = ""
        for future in futures:
            try:
                await future
            except ConnectionLost as e:
                logger.warning("a node is lost, it will be packed when it is back: %s", e)
            except ErrorAnswer as e:
                failure = failure or str(e)
        self.running = False
        if failure:
            peer.refuse(message_id, ErrorCode.NOT_READY, f"pack is not complete: {failure}")
        else:
            peer.answer(message_id, AnswerPack(True))

    def _send(self, storage: Peer) -> Future[AnswerPack]:
        assert storage.node is not None
        storage.node.pack_tid = self.tid
        return storage.ask(AskPack(self.tid))

    def ready(self, peer: Peer) -> None:
        """A storage node begins to serve: it, or the others, may not have heard of a pack."""
        node, master = peer.node, self._master
        assert node is not None and node.nid is not None
        if master.partitions.assigned(node.nid):
            # Not above what exists: it is of no use, and may come from another database.
            self._wanted(min(node.pack_tid, master.last_tid))
        for nid in sorted(master.ready):
            storage = master.connected[nid]
            assert storage.node is not None
            known = storage.node.features
            if FEATURE_MAINTENANCE in known and storage.node.pack_tid < self.tid:
                logger.info("%r is asked for the pack at %s", storage, self.tid.hex())
                self._send(storage).then(_ignore)


def _ignore(answer: Future[AnswerPack]) -> None:
    """It is remembered there."""
