"""The encoding of messages and records: MessagePack lists of a type code and the fields.

The types of fields come from the annotations of the NamedTuples. Each field of a received message is
checked against its type.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgpack
from msgspec import convert

from neo.transactor.messages import MESSAGES, RECORDS, Message, Record

Value = TypeVar("Value")


class CodecError(ValueError):
    """The bytes are no valid message or record."""


def pack(value: object) -> bytes:
    """Encode plain values as MessagePack."""
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(data: bytes) -> Any:
    """Decode MessagePack. Raises CodecError."""
    try:
        return msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as e:
        raise CodecError(str(e)) from None


def typed(kind: type[Value], value: object) -> Value:
    """Return decoded plain values as ``kind``, a type with annotations. Raises CodecError."""
    try:
        return convert(value, kind, builtin_types=(bytes,))
    except ValueError as e:
        raise CodecError(f"not a {kind.__name__}: {e}") from None


class Codec(Generic[Value]):
    """Encodes and decodes a set of NamedTuple types."""

    def __init__(self, types: tuple[type[Value], ...]) -> None:
        self._types = dict(enumerate(types))
        self._codes = {kind: code for code, kind in enumerate(types)}

    def encode(self, value: Value) -> bytes:
        assert isinstance(value, tuple)
        return pack((self._codes[type(value)], *value))

    def decode(self, data: bytes) -> Value:
        """Decode and check one value. Raises CodecError."""
        try:
            code, *fields = unpack(data)
            kind = self._types[typed(int, code)]
        except (ValueError, TypeError, LookupError) as e:
            raise CodecError(f"not a message: {e}") from None
        return typed(kind, fields)


messages: Codec[Message] = Codec(MESSAGES)
records: Codec[Record] = Codec(RECORDS)
