"""The encoding of messages and records: MessagePack lists of a type code and the fields.

The types of fields come from the annotations of the NamedTuples. Each field of a received message is
checked against its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_type_hints

import msgpack

from neo.transactor.messages import MESSAGES, RECORDS, Message, Record, Sid, Spec

#: Numbers have 64 bits, unsigned, as in the text protocol; a stamp may be -1.
LEAST, MOST = -1, (1 << 64) - 1


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


def _number(value: Any) -> int:
    if type(value) is int and LEAST <= value <= MOST:
        return value
    raise CodecError(f"not a number: {value!r:.50}")


def _flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise CodecError(f"not a flag: {value!r:.50}")


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    raise CodecError(f"not bytes: {value!r:.50}")


def _fields(value: Any, count: int) -> Any:
    if type(value) is list and len(value) == count:
        return value
    raise CodecError(f"not {count} fields: {value!r:.50}")


def _sid(value: Any) -> Sid:
    node, number = _fields(value, 2)
    return Sid(_number(node), _number(number))


def _maybe_sid(value: Any) -> Sid | None:
    return None if value is None else _sid(value)


def _spec(value: Any) -> Spec:
    sid, kind, data = _fields(value, 3)
    return Spec(_sid(sid), _number(kind), _bytes(data))


def _specs(value: Any) -> tuple[Spec, ...]:
    if type(value) is not list:
        raise CodecError(f"not a list: {value!r:.50}")
    return tuple(_spec(each) for each in value)


READERS: dict[Any, Callable[[Any], Any]] = {
    int: _number,
    bool: _flag,
    bytes: _bytes,
    Sid: _sid,
    Sid | None: _maybe_sid,
    Spec: _spec,
    tuple[Spec, ...]: _specs,
}


class Codec(Generic[Value]):
    """Encodes and decodes a set of NamedTuple types."""

    def __init__(self, types: tuple[type[Value], ...]) -> None:
        self._codes = {kind: code for code, kind in enumerate(types)}
        self._readers = [
            (kind, [READERS[hint] for hint in get_type_hints(kind).values()]) for kind in types
        ]

    def encode(self, value: Value) -> bytes:
        assert isinstance(value, tuple)
        return pack((self._codes[type(value)], *value))

    def decode(self, data: bytes) -> Value:
        """Decode and check one value. Raises CodecError."""
        try:
            code, *fields = unpack(data)
            kind, readers = self._readers[_number(code)]
        except (ValueError, TypeError, LookupError) as e:
            raise CodecError(f"not a message: {e}") from None
        if len(fields) != len(readers):
            raise CodecError(f"{kind.__name__} has {len(fields)} fields, not {len(readers)}")
        return kind(*(read(field) for read, field in zip(readers, fields, strict=True)))


messages: Codec[Message] = Codec(MESSAGES)
records: Codec[Record] = Codec(RECORDS)
