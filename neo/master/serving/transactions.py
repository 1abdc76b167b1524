"""What operators ask about open transactions, through an admin node."""

from __future__ import annotations

from neo.master.election.serve_masters import ServeMasters, done
from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.packets import AnswerTransactions, AskTransactions, EndTransaction, Message


class ServeTransactions(ServeMasters):
    @on(AskTransactions)
    def transactions(self, peer: Peer, message_id: int, m: AskTransactions) -> None:
        """Answer when the storage nodes have told their locks."""
        self.master.coordinator.open.describe(
            lambda rows: peer.answer(message_id, AnswerTransactions(rows))
        )

    @on(EndTransaction)
    def end(self, peer: Peer, message_id: int, m: EndTransaction) -> Message:
        self.master.coordinator.open.end(m.ttid)
        return done(f"transaction 0x{m.ttid.hex()} is ended: its locks are released")
