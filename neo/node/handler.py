"""Dispatch tables: which method of a handler takes which message.

A peer has one handler at a time, chosen by the peer's identity and the state of this node. A message
that is not in the handler's table is *unexpected*, an error of the peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from neo.node.peer import Peer
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import Error, Message, Ping, Pong

Method = Callable[..., Message | None]
_M = TypeVar("_M", bound=Callable[..., Any])


def on(*messages: type[Message]) -> Callable[[_M], _M]:
    """Mark a method ``(self, peer, message_id, message)`` as the one that takes these messages.

    It returns the answer, or None for a notification and for an answer that ``peer.answer(message_id,
    …)`` sends later. It raises ErrorAnswer to answer with an Error packet, PeerError to disconnect the
    peer.
    """

    def mark(method: _M) -> _M:
        method._messages = messages  # type: ignore[attr-defined]
        return method

    return mark


class Handler:
    """Base of all handlers. Subclasses inherit the dispatch tables of their bases."""

    #: By type of message: the function that takes it, with the handler as its first argument.
    table: Mapping[type[Message], Method]
    _names: ClassVar[dict[type[Message], str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = dict(cls._names)
        for name, value in vars(cls).items():
            for message in getattr(value, "_messages", ()):
                names[message] = name
        cls._names = names
        cls.make_table()

    @classmethod
    def make_table(cls) -> None:
        """Look up the methods, once for all messages."""
        cls.table = {message: getattr(cls, name) for message, name in cls._names.items()}

    def failed(self, peer: Peer, error: Exception) -> Message | None:
        """Return the answer to a message whose method raised ``error``; None if there is none. Raises
        ``error`` if it is a bug."""
        if isinstance(error, ErrorAnswer):
            return Error(error.code.value, error.message)
        raise error

    def lost(self, peer: Peer, reason: str) -> None:
        """React to the end of the connection. Not called after ``peer.close()``."""

    @on(Ping)
    def ping(self, peer: Peer, message_id: int, message: Ping) -> Message:
        """Answer any peer, identified or not."""
        return Pong()


Handler._names = {Ping: "ping"}
Handler.make_table()
