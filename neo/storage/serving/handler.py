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
from neo.storage.commit.transactions import TransactionRefused, Unverifiable

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

logger = logging.getLogger("neo.storage")

#: None: it will be answered later.
Read = Callable[[], Message | None]


def refusal(peer: Peer, error: Exception) -> ErrorAnswer:
    """The answer to a request whose execution raised ``error``.

    A mistake of ours is logged, and fails that request: neither this node nor what others asked for.
    """
    if isinstance(error, ErrorAnswer):
        return error
    if isinstance(error, RecordDamaged):
        # One bad record must not stop the node that serves all the others.
        logger.error("%s", error)
        return ErrorAnswer(ErrorCode.CHECKING_ERROR, str(error))
    if isinstance(error, BackendRefused):
        return ErrorAnswer(ErrorCode.DENIED, str(error))
    if isinstance(error, Unverifiable):
        return ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, str(error))
    if isinstance(error, TransactionRefused):
        return ErrorAnswer(ErrorCode.PROTOCOL_ERROR, str(error))
    logger.error("failure while serving %r", peer, exc_info=error)
    return ErrorAnswer(ErrorCode.CHECKING_ERROR, "internal failure: see the log of this node")


class StorageHandler(Handler):
    """Methods may raise BackendFailure (the node starts again), BackendRefused, TransactionRefused."""

    def __init__(self, core: StorageNode) -> None:
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
            except (RecordDamaged, BackendRefused, TransactionRefused) as e:
                raise refusal(peer, e) from None

        return guarded

    def answer_with(self, peer: Peer, message_id: int, read: Read) -> Callable[[], None]:
        """What to call when ``read`` may run: it answers. ``read`` may raise ErrorAnswer."""
        core = self.core

        def run() -> None:
            if peer.closed:
                return
            if peer.full:
                # Many may have waited for the same lock.
                peer.put_off(core.guard(run))
                return
            try:
                answer = read()
            except BackendFailure:
                raise
            except Exception as e:  # noqa: BLE001  # it may run on behalf of another peer
                refused = refusal(peer, e)
                peer.refuse(message_id, refused.code, refused.message)
            else:
                if answer is None:
                    return
                if core.shell.fault(FaultSite.READ_ANSWER_LATE):
                    core.call_later(LATE_SECONDS, lambda: peer.answer(message_id, answer))
                else:
                    peer.answer(message_id, answer)

        return run
