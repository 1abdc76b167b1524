"""Operations in steps, as the primary master announces them (specification 27)."""

from __future__ import annotations

from dataclasses import dataclass

from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.packets import (
    AskRoom,
    NotifyOperation,
    NotifyOperationEnded,
    NotifyOperationState,
)
from neo.storage.maintenance.cleanup import Eraser
from neo.storage.operations.part import Operations


@dataclass(frozen=True, eq=False, repr=False)
class OperationNotices:
    """Passes notices and questions to the part that does steps of operations."""

    operations: Operations
    eraser: Eraser

    @on(NotifyOperation)
    def operation(self, peer: Peer, message_id: int, m: NotifyOperation) -> None:
        self.operations.started(m)

    @on(NotifyOperationState)
    def operation_state(self, peer: Peer, message_id: int, m: NotifyOperationState) -> None:
        self.operations.told(m)

    @on(NotifyOperationEnded)
    def operation_ended(self, peer: Peer, message_id: int, m: NotifyOperationEnded) -> None:
        self.operations.ended(m)
        self.eraser.maintenance_ended()

    @on(AskRoom)
    def ask_room(self, peer: Peer, message_id: int, m: AskRoom) -> None:
        """Answer when the disk of the archive was looked at."""
        self.operations.measure(peer, message_id, m)
