"""What readers of everything ask of a storage node: pages of revisions (DESIGN, *Spark*)."""

from __future__ import annotations

from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AnswerRevisions, AskRevisions, Message
from neo.storage.backend.api import ROW_BYTES, Order, PageRequest, RevisionRow
from neo.storage.serving.client import ServeClient

#: Rows of a page; the last step may bring as many again.
ROWS_MAX = 2_000
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
        peer.begin_job()
        self._go_on(peer, message_id, ask, [])

    def _go_on(
        self, peer: Peer, message_id: int, ask: PageRequest, found: list[RevisionRow]
    ) -> None:
        """Put a page together in steps of some milliseconds, in between of which others are served:
        of what the database looks at, little or nothing may belong to the page."""

        def read() -> Message | None:
            rest = None
            try:
                self._check_partition(ask.partition)
                self._check_packed(ask.order, ask.min_tid, ask.max_tid)
                rows, after = self.core.backend.revisions(ask)
                found.extend(rows)
                left = ask.max_bytes - sum(ROW_BYTES + (row[4] if ask.data else 0) for row in rows)
                if after is not None and left > 0 and len(found) < ROWS_MAX:
                    rest = ask._replace(after=after, max_bytes=left)
            finally:
                if rest is None:
                    peer.end_job()
            if rest is None:
                return AnswerRevisions(found, after is not None)
            step = self.core.guard(lambda: self._go_on(peer, message_id, rest, found))
            self.core.call_later(0, step)
            return None

        self._scan(peer, message_id, read)

    def _check_packed(self, order: Order, min_tid: bytes, max_tid: bytes) -> None:
        """A pack keeps of each object what was current at its tid, and all that is later. A reader of
        all revisions from the beginning takes what is left, if that tid is among what it reads: of what
        was current earlier, nothing tells what is left."""
        packed = self.core.backend.get_config("_pack_tid")
        if packed is None:
            return
        tid = int(packed).to_bytes(8, "big")
        if max_tid < tid or (order is not Order.SNAPSHOT and ZERO_TID < min_tid <= tid):
            raise ErrorAnswer(
                ErrorCode.TID_NOT_FOUND,
                f"the database was packed up to {tid.hex()}: what was current or changed before"
                " may be gone; load again for what is left, or read as of a later transaction",
            )
