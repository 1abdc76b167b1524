"""Base of the handlers of a storage node: translates errors of the database to answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

from neo.node.handler import Handler, Method
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import Message
from neo.storage.backend.api import BackendFailure, BackendRefused, RecordDamaged
from neo.storage.commit.transactions import Hopeless, TransactionRefused
from neo.storage.database import Database

T = TypeVar("T")

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


def answering(peer: Peer, message_id: int, step: Callable[[], Message | None]) -> Callable[[], None]:
    """Return a callback, for an event of another peer, that answers a request with what ``step`` returns,
    or with its refusal. It raises BackendFailure."""

    def answer() -> None:
        try:
            message = step()
        except BackendFailure:
            raise
        except Exception as e:  # noqa: BLE001  # it fails this request only
            refused = refusal(peer, e)
            peer.refuse(message_id, refused.code, refused.message)
        else:
            if message is not None:
                peer.answer(message_id, message)

    return answer


def attempting(database: Database, method: Callable[..., T]) -> Callable[..., T]:
    """Return ``method`` as an attempt: see :meth:`~neo.storage.database.Database.attempt`."""

    def attempt(*args: object) -> T:
        with database.attempt():
            return method(*args)

    return attempt


@dataclass(eq=False, repr=False)
class StorageHandler(Handler):
    """Methods may raise BackendFailure (the node restarts), BackendRefused, TransactionRefused.

    ``may_refuse``: whether messages may be refused. Orders of the master may not: what it decided must be
    done, if need be after another start.
    """

    may_refuse: ClassVar[bool] = True

    database: Database

    @cached_property
    def table(self) -> Mapping[type[Message], Method]:
        table = super().table
        if self.database.careful and self.may_refuse:
            table = {m: attempting(self.database, method) for m, method in table.items()}
        return table

    def failed(self, peer: Peer, error: Exception) -> Message | None:
        if isinstance(error, BackendFailure):
            self.database.failed(error)
            return None
        if isinstance(error, (RecordDamaged, BackendRefused, TransactionRefused)):
            error = refusal(peer, error)
        return super().failed(peer, error)

    def sync_seconds(self) -> float:
        return self.database.backend.engine.work().syncs.sum
