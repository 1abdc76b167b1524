"""Base of the handlers of a storage node: errors of its database become what peers understand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.handler import Handler, Method
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import Message
from neo.storage.backend.api import BackendFailure, BackendRefused, RecordDamaged
from neo.storage.transactions import TransactionRefused, Unverifiable

if TYPE_CHECKING:
    from neo.storage.core import StorageCore

logger = logging.getLogger("neo.storage")

#: None: it will be answered later.
Read = Callable[[], Message | None]


def _damaged(error: RecordDamaged) -> ErrorAnswer:
    """One bad record must not stop the node that serves all the others."""
    logger.error("%s", error)
    return ErrorAnswer(ErrorCode.CHECKING_ERROR, str(error))


class StorageHandler(Handler):
    """Methods may raise BackendFailure (the node starts again), BackendRefused, TransactionRefused."""

    def __init__(self, core: StorageCore) -> None:
        self.core = core

    def method(self, message: type[Message]) -> Method | None:
        method = super().method(message)
        if method is None:
            return None

        def guarded(peer: Peer, message_id: int, message: Message) -> Message | None:
            try:
                return method(peer, message_id, message)
            except BackendFailure as e:
                self.core.backend_failed(e)
                return None
            except RecordDamaged as e:
                raise _damaged(e) from None
            except BackendRefused as e:
                raise ErrorAnswer(ErrorCode.DENIED, str(e)) from None
            except Unverifiable as e:
                raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, str(e)) from None
            except TransactionRefused as e:
                raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, str(e)) from None

        return guarded

    def answer_with(self, peer: Peer, message_id: int, read: Read) -> Callable[[], None]:
        """What to call when ``read`` may run: it answers. ``read`` may raise ErrorAnswer."""
        core = self.core

        def run() -> None:
            if peer.closed:
                return
            try:
                answer = read()
            except RecordDamaged as e:
                refusal = _damaged(e)
                peer.refuse(message_id, refusal.code, refusal.message)
            except ErrorAnswer as e:
                peer.refuse(message_id, e.code, e.message)
            else:
                if answer is None:
                    return
                if core.shell.fault(FaultSite.READ_ANSWER_LATE):
                    core.call_later(LATE_SECONDS, lambda: peer.answer(message_id, answer))
                else:
                    peer.answer(message_id, answer)

        return run
