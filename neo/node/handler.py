"""Dispatch tables: which method of a handler takes which message.

A peer has one handler at a time, chosen by the peer's identity and the state of this node. A message
that is not in the handler's table is *unexpected*, an error of the peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
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


def routes(part: object) -> dict[type[Message], Method]:
    """Return the methods of an object that are marked with :func:`on`, by type of message."""
    return {
        message: getattr(part, name)
        for name, value in vars(type(part)).items()
        for message in getattr(value, "_messages", ())
    }


class Handler:
    """Base of all handlers. Subclasses take what their bases take."""

    _names: ClassVar[dict[type[Message], str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = dict(cls._names)
        for name, value in vars(cls).items():
            for message in getattr(value, "_messages", ()):
                names[message] = name
        cls._names = names

    @cached_property
    def table(self) -> Mapping[type[Message], Method]:
        """The method that takes each type of message."""
        return {message: getattr(self, name) for message, name in self._names.items()}

    def failed(self, peer: Peer, error: Exception) -> Message | None:
        """Return the answer to a message whose method raised ``error``; None if there is none. Raises
        ``error`` if it is a bug."""
        if isinstance(error, ErrorAnswer):
            return Error(error.code.value, error.message)
        raise error

    def lost(self, peer: Peer, reason: str) -> None:
        """React to the end of the connection. Not called after ``peer.close()``."""

    def waits_for(self, message: Message) -> str | None:
        """Return, for a trace, the transactions that hold the object for which a store or check waits,
        separated by spaces; None if it does not wait for a lock."""
        return None

    def sync_seconds(self) -> float:
        """Return, for a trace, the seconds that syncs of this node's disk have taken so far."""
        return 0.0

    @on(Ping)
    def ping(self, peer: Peer, message_id: int, message: Ping) -> Message:
        """Answer any peer, identified or not."""
        return Pong()


Handler._names = {Ping: "ping"}
