"""Messages to bytes and back, checked against the table of messages (specification 2).

A packet is the MessagePack array ``[message id, code, arguments]``; packets follow each other without
a length prefix. :class:`Decoder` takes bytes in any portions and returns whole messages. Whatever the
bytes are, it raises nothing but :class:`PeerError`, and its memory is bounded by its limits.

msgpack finds the end of a message and unpacks it; msgspec checks the arguments against the class of the
message, and encodes. What neither of them does is here: texts, enumerations and free-form values, see
decision 36.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from math import isfinite
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

import msgpack
from msgspec import ValidationError, convert
from msgspec.msgpack import Encoder
from msgspec.structs import astuple

from neo.protocol.enums import EXTENSION_TYPES
from neo.protocol.errors import PeerError
from neo.protocol.packets import BY_CODE, CODES, Message

#: Limit for a peer that has not identified itself: its longest legitimate message is
#: RequestIdentification.
LIMIT_STRANGER = 64 * 1024
#: Limit for an identified peer that the master does not vouch for. Its longest legitimate messages are
#: the partition table of a storage node that joins, and what a backup's node has of one transaction.
LIMIT_GUEST = 4 * 1024 * 1024
#: Limit for a node of the cluster. One object of 256 MiB, and transactions of millions of oids, must fit;
#: a length field must not decide how much memory a node takes.
LIMIT_PEER = 512 * 1024 * 1024

#: Longest arrays and maps: one item for each 8 bytes of the limit. neoctl, always a stranger, lists
#: partitions.
ITEM_BYTES = 8
ITEMS_STRANGER = LIMIT_STRANGER // ITEM_BYTES
#: At most. 16 million oids are 160 MB.
ITEMS_PEER = 1 << 24
#: What a connection has for bytes that wait for the rest of their message, at first; msgpack would
#: take a MiB, and a node has thousands of connections.
BUFFER_BYTES = 16 * 1024
#: Lengths are looked for in this much of an incomplete message: no body that is worth announcing
#: comes later in any message.
HEAD_BYTES = 512

#: First byte -> (width of the length that follows, bytes between it and the body).
_BODIES = {
    **{0xC4 + i: (1 << i, 0) for i in range(3)},  # bin 8, 16, 32
    **{0xC7 + i: (1 << i, 1) for i in range(3)},  # ext 8, 16, 32
    **{0xD9 + i: (1 << i, 0) for i in range(3)},  # str 8, 16, 32
}
#: First byte -> bytes that follow it: numbers, fixext, lengths of arrays and maps.
_FIXED = {
    **{0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8},
    **{0xD4 + i: 1 + (1 << i) for i in range(5)},
    **{0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4},
    **{0xA0 + i: i for i in range(32)},  # fixstr
}

MAX_ID = 0xFFFFFFFF

#: The items of all enumerations by (extension type, data).
_ITEMS: dict[tuple[int, bytes], Enum] = {
    (number, bytes([item.value])): item
    for number, enum in enumerate(EXTENSION_TYPES)
    for item in enum
}

Translation = Callable[[Any], Any]
"""Takes a value, returns another form of it. A value of a wrong type passes unchanged: msgspec refuses
it, and names its place."""


# -- texts, enumerations, free-form values ---------------------------------------------------------


def _text(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if type(value) is bytes else value


def _free(value: Any) -> Any:
    """Return a received free-form value, in which bytes become texts: names and paths."""
    if type(value) is bytes:
        return _text(value)
    if type(value) is list:
        return [_free(item) for item in value]
    if type(value) is dict:
        return {_free(key): _free(item) for key, item in value.items()}
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is no finite number")
    if value is not None and not isinstance(value, (float, int, Enum)):
        raise TypeError(f"no value of the protocol: {_short(value)}")
    return value


def _number(enum: type[Enum]) -> Translation:
    """msgspec makes an item of its number; an item of another enumeration, or a plain number, is none."""

    def number(value: Any) -> Any:
        if type(value) is enum:
            return value._value_
        raise TypeError(f"{enum.__name__} expected, got {_short(value)}")

    return number


def _reader(hint: Any) -> Translation | None:
    """Return the translation of the values of an annotation; None if they need none."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is list:
        return _list(_reader(args[0]))
    if origin is tuple:
        return _row(args)
    if origin is dict:
        return _map(_reader(args[0]), _reader(args[1]))
    if origin in (Union, UnionType):
        (inner,) = (arg for arg in args if arg is not NoneType)
        read = _reader(inner)
        return read and (lambda value: None if value is None else read(value))
    if hint in EXTENSION_TYPES:
        return _number(hint)
    return _free if hint is Any else _text if hint is str else None


def _list(inner: Translation | None) -> Translation | None:
    return inner and (
        lambda value: [inner(item) for item in value] if type(value) is list else value
    )


def _row(hints: tuple[Any, ...]) -> Translation | None:
    inners = [_reader(hint) for hint in hints]

    def translate(value: Any) -> Any:
        if type(value) is not list or len(value) != len(inners):
            return value
        return [
            item if inner is None else inner(item)
            for inner, item in zip(inners, value, strict=True)
        ]

    return translate if any(inners) else None


def _map(key: Translation | None, inner: Translation | None) -> Translation | None:
    if key is None and inner is None:
        return None
    key, inner = key or _same, inner or _same

    def translate(value: Any) -> Any:
        return {key(k): inner(v) for k, v in value.items()} if type(value) is dict else value

    return translate


def _same(value: Any) -> Any:
    return value


def _hints(cls: type[Message]) -> tuple[Any, ...]:
    return tuple(get_type_hints(cls, include_extras=True).values())


# -- encoding --------------------------------------------------------------------------------------


def _encode_other(value: object) -> object:
    if isinstance(value, Enum):
        return _EXT[value]
    if isinstance(value, bytes):
        return bytes(value)  # of a class derived from it
    raise TypeError(f"{value!r} cannot travel in a message")


def _texts_to_bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (tuple, list)):
        return [_texts_to_bytes(item) for item in value]
    if isinstance(value, dict):
        return {_texts_to_bytes(k): _texts_to_bytes(v) for k, v in value.items()}
    return value


def encode(message_id: int | None, message: Message) -> bytes:
    """Return the bytes of one packet: texts become *bin*, enumerations extensions (specification 2). Any
    thread.

    ``message_id`` is None only in an Error that answers no message.
    """
    cls = type(message)
    if cls in _PLAIN:
        return _ENCODE((message_id, CODES[cls], message))
    arguments = astuple(message)
    if cls in _HAS_TEXT:
        arguments = _texts_to_bytes(arguments)
    packed: bytes = msgpack.packb((message_id, CODES[cls], arguments), default=_encode_other)
    return packed


def _mention(hints: tuple[Any, ...], kinds: tuple[Any, ...]) -> bool:
    return any(hint in kinds or _mention(get_args(hint), kinds) for hint in hints)


_ENCODE = Encoder(enc_hook=_encode_other).encode
_EXT = {item: msgpack.ExtType(*extension) for extension, item in _ITEMS.items()}
_HAS_TEXT = frozenset(cls for cls in CODES if _mention(_hints(cls), (str, Any)))
#: Messages that msgspec encodes as they are.
_PLAIN = frozenset(cls for cls in CODES if not _mention(_hints(cls), (str, Any, *EXTENSION_TYPES)))


# -- checking --------------------------------------------------------------------------------------


class Packet(NamedTuple):
    """``message_id`` is None only in an Error that answers no message at all (specification 2.23)."""

    message_id: int | None
    message: Message


_READERS: dict[int, tuple[type[Message], Translation | None]] = {
    code: (cls, _row(_hints(cls))) for code, cls in BY_CODE.items()
}
#: What msgspec says, and where.
_REFUSAL = re.compile(r"(?P<problem>.*?)(?:, got `.*?`)?(?: - at (?:`key` in )?`\$(?P<place>.*)`)?")


def _extension(number: int, data: bytes) -> Enum:
    item = _ITEMS.get((number, data))
    if item is None:
        raise PeerError(f"unknown enumeration item: extension type {number}, data {data[:8].hex()}")
    return item


def _refusal(cls: type[Message], arguments: list[Any], problem: str) -> str:
    """Return what is wrong with the arguments of a message: the name of the first wrong one, its place
    there, and its value."""
    names = cls.__struct_fields__
    if len(arguments) != len(names):
        return f"{len(names)} arguments expected, got {len(arguments)}"
    found = cast(re.Match[str], _REFUSAL.fullmatch(problem))
    if found["place"] is None:
        return f"wrong argument: {_untranslatable(cls, arguments)}: {problem}"
    value: Any = arguments
    for index in re.findall(r"\[(\d+|\.\.\.)\]", found["place"]):
        if index == "...":
            break  # somewhere in a map, or a list of which msgspec does not count the items
        value = value[int(index)]
    first, *rest = re.findall(r"\[.*?\]", found["place"])
    place = names[int(first[1:-1])] + "".join(rest)
    problem = found["problem"].lower()
    for theirs, ours in (("`", ""), ("object", "map"), ("null", "nil")):
        problem = problem.replace(theirs, ours)
    return f"wrong argument: {place}: {problem}, got {_short(value)}"


def _untranslatable(cls: type[Message], arguments: list[Any]) -> str:
    """Return the name of the argument that has no translation."""
    for name, hint, value in zip(cls.__struct_fields__, _hints(cls), arguments, strict=True):
        try:
            (_reader(hint) or _same)(value)
        except (TypeError, ValueError, RecursionError):
            return name
    return "?"


def _short(value: object) -> str:
    """Return a value for people, in bounded time whatever it is."""
    if isinstance(value, bytes):
        return repr(value) if len(value) <= 24 else f"{value[:24]!r}... ({len(value)} bytes)"
    if isinstance(value, (list, dict)):
        return f"{'an array' if isinstance(value, list) else 'a map'} of {len(value)}"
    return repr(value)


# -- decoding --------------------------------------------------------------------------------------


def check_lengths(head: bytes | bytearray, limit: int) -> None:
    """Raise PeerError if a length in ``head``, the beginning of a message, is above ``limit``: before
    anything of that size comes.

    MessagePack is a flat sequence of headers and bodies, so that no nesting needs to be followed. The
    decoder itself looks at the length of a *bin* only when its last byte is there.
    """
    position = 0
    while position < len(head):
        first = head[position]
        body = _BODIES.get(first)
        if body is None:
            position += 1 + _FIXED.get(first, 0)
            continue
        width, gap = body
        start = position + 1 + width
        if start > len(head):
            return
        length = int.from_bytes(head[position + 1 : start], "big")
        if length > limit:
            raise PeerError(f"message of more than {limit} bytes: {length} bytes are announced")
        position = start + gap + length


class Decoder:
    """Takes received bytes and returns packets. ``limit``: bytes of the longest accepted message."""

    def __init__(self, limit: int) -> None:
        #: Bytes of the last whole message.
        self.size = 0
        self._start(limit)

    def _start(self, limit: int) -> None:
        items = min(limit // ITEM_BYTES, ITEMS_PEER)
        self._limit = limit
        self._later = 0  # the limit that is wanted, after a message of which the beginning is read
        self._unpacker = msgpack.Unpacker(
            raw=True,  # specification 2.6
            strict_map_key=False,
            ext_hook=_extension,
            max_buffer_size=limit,
            read_size=min(limit, BUFFER_BYTES),
            max_bin_len=limit,
            max_str_len=limit,
            max_ext_len=16,
            # Releases of msgpack reserve room when they read the length: nested arrays multiply it.
            max_array_len=items,
            max_map_len=items,
        )
        self._fed = 0  # bytes given to the unpacker
        #: Bytes of the whole messages that were returned.
        self.position = 0
        #: Bytes that wait for the rest of their message, once all whole messages were taken.
        self.incomplete = 0
        self._recent: bytes | bytearray | memoryview = b""
        # The beginning of an incomplete message, all of it below LIMIT_STRANGER.
        self._head = bytearray()

    def raise_limit(self, limit: int) -> None:
        """Accept longer messages from here on, or after one of which more than LIMIT_STRANGER is here."""
        if self._head and self.incomplete > len(self._head):
            self._later = limit
            return
        rest = bytes(self._head) or self._unpacker.read_bytes(self._limit)
        self._start(limit)
        self.feed(rest)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes. Raise PeerError if an incomplete message is longer than the limit."""
        self._fed += len(data)
        self.incomplete = self._fed - self.position
        self._recent = data
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull:
            raise PeerError(f"message of more than {self._limit} bytes") from None

    def take(self) -> Packet | None:
        """Return the next whole message; None when more bytes are needed. Raises PeerError that names the
        message and the argument, if it is about one."""
        if not self.incomplete:
            return None
        try:
            packet = self._unpacker.unpack()
        except msgpack.OutOfData:
            self._check_incomplete()
            return None
        except msgpack.StackError:
            raise PeerError("malformed message: nested too deeply") from None
        except (ValueError, TypeError, msgpack.FormatError) as e:
            # Lengths over the limits, bytes that no format uses, unhashable map keys...
            reason = f": {e}" if str(e) else ""
            raise PeerError(f"malformed message{reason}") from None
        position = self._unpacker.tell()
        self.size = position - self.position
        self.incomplete = self._fed - position
        self.position = position
        if self._head:
            self._head.clear()
            if self._later:
                self.raise_limit(self._later)
        if type(packet) is not list or len(packet) != 3:
            raise PeerError(f"not a NEO packet (an array of 3 is expected): {_short(packet)}")
        message_id, code, arguments = packet
        if type(code) is not int or type(arguments) is not list:
            raise PeerError(f"not a NEO packet (id, code, arguments): {_short(packet)}")
        known = _READERS.get(code)
        if known is None:
            raise PeerError(f"unknown message code {code:#x}")
        cls, translate = known
        if type(message_id) is not int and not (message_id is None and code == 0x8000):
            raise PeerError(f"{cls.__name__}: message id is {_short(message_id)}")
        try:
            return Packet(
                message_id, convert(arguments if translate is None else translate(arguments), cls)
            )
        except (ValidationError, TypeError, ValueError, RecursionError) as e:
            raise PeerError(f"{cls.__name__}: {_refusal(cls, arguments, str(e))}") from None

    def _check_incomplete(self) -> None:
        """Bound what the unpacker has made of an incomplete message; it bounds its buffer itself."""
        waiting = self.incomplete
        if waiting > self._limit:
            raise PeerError(f"message of more than {self._limit} bytes")
        looked = len(self._head)
        begin = max(0, len(self._recent) - waiting)
        self._head += self._recent[begin : begin + LIMIT_STRANGER - looked]
        self._recent = b""
        if looked < HEAD_BYTES:
            check_lengths(self._head[:HEAD_BYTES], self._limit)
