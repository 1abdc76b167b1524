"""Tables of messages: which method of a handler takes which message.

A peer has one handler at a time, chosen by who it is and by the state of this node. A message that
the handler's table does not have is *unexpected*: the peer's error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from neo.node.peer import Peer
from neo.protocol.packets import Message, Ping, Pong

Method = Callable[..., Message | None]
_M = TypeVar("_M", bound=Callable[..., Any])


def on(*messages: type[Message]) -> Callable[[_M], _M]:
    """Mark a method ``(self, peer, message_id, message)`` as the one that takes these messages.

    It returns the answer, or None for a notification or when the answer comes later through
    ``peer.answer(message_id, …)``. It raises ErrorAnswer to answer with an Error packet, PeerError
    to get rid of the peer.
    """

    def mark(method: _M) -> _M:
        method._messages = messages  # type: ignore[attr-defined]
        return method

    return mark


class Handler:
    """Base of all handlers. Subclasses inherit the tables of their bases."""

    table: ClassVar[dict[type[Message], str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        table = dict(cls.table)
        for name, value in vars(cls).items():
            for message in getattr(value, "_messages", ()):
                table[message] = name
        cls.table = table

    def method(self, message: type[Message]) -> Method | None:
        name = self.table.get(message)
        return None if name is None else getattr(self, name)

    def lost(self, peer: Peer, reason: str) -> None:
        """The connection ended, for whatever reason but our own close()."""

    @on(Ping)
    def ping(self, peer: Peer, message_id: int, message: Ping) -> Message:
        """Answered by every node to everybody, identified or not."""
        return Pong()


Handler.table = {Ping: "ping"}
