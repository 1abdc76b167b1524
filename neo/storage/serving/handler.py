"""Base of the handlers of a storage node: errors of its database become what peers understand."""

from __future__ import annotations

import logging

from neo.node.handler import Handler, Method
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import Message
from neo.storage.backend.api import BackendFailure, BackendRefused, RecordDamaged
from neo.storage.commit.transactions import TransactionRefused, Unverifiable
from neo.storage.database import Database

logger = logging.getLogger("neo.storage")


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

    def __init__(self, database: Database) -> None:
        self.database = database

    def method(self, message: type[Message]) -> Method | None:
        method = super().method(message)
        if method is None:
            return None

        def guarded(peer: Peer, message_id: int, message: Message) -> Message | None:
            try:
                return method(peer, message_id, message)
            except BackendFailure as e:
                self.database.failed(e)
                return None
            except (RecordDamaged, BackendRefused, TransactionRefused) as e:
                raise refusal(peer, e) from None

        return guarded
