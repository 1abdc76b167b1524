"""Base of the handlers of a storage node: errors of its database become what peers understand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from neo.node.handler import Handler, Method
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import Message
from neo.storage.backend.api import BackendFailure, BackendRefused
from neo.storage.transactions import TransactionRefused

if TYPE_CHECKING:
    from neo.storage.core import StorageCore

Read = Callable[[], Message]


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
            except BackendRefused as e:
                raise ErrorAnswer(ErrorCode.DENIED, str(e)) from None
            except TransactionRefused as e:
                raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, str(e)) from None

        return guarded

    @staticmethod
    def answer_with(peer: Peer, message_id: int, read: Read) -> Callable[[], None]:
        """What to call when ``read`` may run: it answers. ``read`` may raise ErrorAnswer."""

        def run() -> None:
            if peer.closed:
                return
            try:
                answer = read()
            except ErrorAnswer as e:
                peer.refuse(message_id, e.code, e.message)
            else:
                peer.answer(message_id, answer)

        return run
