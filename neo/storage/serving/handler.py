"""Base of the handlers of a storage node: translates errors of the database to answers."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from neo.node.handler import Handler
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import Message
from neo.storage.backend.api import BackendFailure, BackendRefused, RecordDamaged
from neo.storage.commit.transactions import Hopeless, TransactionRefused
from neo.storage.database import Database

logger = logging.getLogger("neo.storage")


def refusal(peer: Peer, error: Exception) -> ErrorAnswer:
    """Return the answer to a request whose execution raised ``error``.

    Log an unexpected error. It fails that request, but neither the node nor other requests.
    """
    if isinstance(error, ErrorAnswer):
        return error
    if isinstance(error, RecordDamaged):
        # A damaged record must not stop the node, which serves all others.
        logger.error("%s", error)
        return ErrorAnswer(ErrorCode.CHECKING_ERROR, str(error))
    if isinstance(error, BackendRefused):
        return ErrorAnswer(ErrorCode.DENIED, str(error))
    if isinstance(error, Hopeless):
        return ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, str(error))
    if isinstance(error, TransactionRefused):
        return ErrorAnswer(ErrorCode.PROTOCOL_ERROR, str(error))
    logger.error("failure while serving %r", peer, exc_info=error)
    return ErrorAnswer(ErrorCode.CHECKING_ERROR, "internal failure: see the log of this node")


@dataclass(eq=False, repr=False)
class StorageHandler(Handler):
    """Methods may raise BackendFailure (the node restarts), BackendRefused, TransactionRefused."""

    database: Database

    def failed(self, peer: Peer, error: Exception) -> Message | None:
        if isinstance(error, BackendFailure):
            self.database.failed(error)
            return None
        if isinstance(error, (RecordDamaged, BackendRefused, TransactionRefused)):
            error = refusal(peer, error)
        return super().failed(peer, error)
