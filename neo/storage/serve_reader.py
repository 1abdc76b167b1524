"""What readers of everything ask of a storage node: pages of revisions (DESIGN, *Spark*)."""

from __future__ import annotations

from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AnswerRevisions, AskRevisions, Message
from neo.storage.backend.api import Order, PageRequest
from neo.storage.serve_client import ServeClient

#: Asked for more, a node sends pages of this size: some milliseconds of its time.
PAGE_BYTES_MAX = 16 * 1024 * 1024


class ServeReader(ServeClient):
    """The handler of an identified client, whether it reads objects or everything."""

    @on(AskRevisions)
    def revisions(self, peer: Peer, message_id: int, m: AskRevisions) -> None:
        """Waits for what is locked now: a reader asks up to a tid that the master has finished."""
        try:
            order = Order(m.order)
        except ValueError:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"order {m.order} is unknown: 0, 1 or 2 expected"
            ) from None
        if not 0 < m.max_bytes:
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, "a page of no bytes")
        size = min(m.max_bytes, PAGE_BYTES_MAX)
        ask = PageRequest(m.partition, order, m.min_tid, m.max_tid, m.after, size, m.data)

        def read() -> Message:
            self._check_partition(m.partition)
            self._check_packed(order, m.min_tid, m.max_tid)
            rows, more = self.core.backend.revisions(ask)
            return AnswerRevisions(rows, more)

        self._scan(peer, message_id, read)

    def _check_packed(self, order: Order, min_tid: bytes, max_tid: bytes) -> None:
        """A pack keeps of each object what was current at its tid, and all that is later. A reader of
        all revisions from the beginning takes what is left."""
        packed = self.core.backend.get_config("_pack_tid")
        if packed is None:
            return
        tid = int(packed).to_bytes(8, "big")
        snapshot = order is Order.SNAPSHOT
        if max_tid < tid if snapshot else ZERO_TID < min_tid <= tid:
            raise ErrorAnswer(
                ErrorCode.TID_NOT_FOUND,
                f"the database was packed up to {tid.hex()}: what was current or changed before"
                " may be gone; read a snapshot from there on, or all revisions that are left",
            )
