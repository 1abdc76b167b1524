"""What a node passes to another one of its process, compared with what the bytes of the message give."""

from __future__ import annotations

from enum import Enum
from types import NoneType
from typing import Any

from msgspec.structs import astuple

from neo.protocol.codec import LIMIT_PEER, Decoder, encode
from neo.protocol.packets import Message


def check(message: Message, detached: Message) -> None:
    """Raise AssertionError if ``detached`` is not what a receiver may get for ``message``."""
    wrong = difference(message, detached)
    assert wrong is None, wrong



def difference(message: Message, detached: Message) -> str | None:
    """Return in which way ``detached`` is not what decoding the bytes of ``message`` gives; None if it
    is the same."""
    decoder = Decoder(LIMIT_PEER)
    decoder.feed(encode(0, message))
    packet = decoder.take()
    assert packet is not None
    if type(packet.message) is not type(detached):
        return f"{detached} instead of {packet.message}"
    fields = zip(message.__struct_fields__, astuple(packet.message), astuple(detached), strict=True)
    for name, decoded, passed in fields:
        if not _alike(decoded, passed):
            return f"{type(message).__name__}.{name}: {passed!r} instead of {decoded!r}"
        if shared := _shared(getattr(message, name), passed):
            return f"{type(message).__name__}.{name}: {shared!r} is shared with the sender"
    return None


def _alike(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict):
        return _alike(list(one.items()), list(other.items()))
    return bool(one == other)


def _shared(one: Any, other: Any) -> object:
    """Return an object of both values that either holder could change."""
    if one is other and not isinstance(one, (bytes, str, int, float, Enum, NoneType, tuple)):
        return one
    if isinstance(one, (list, tuple)):
        return next(filter(None, map(_shared, one, other)), None)
    if isinstance(one, dict):
        return next(filter(None, map(_shared, one.values(), other.values())), None)
    return None
