"""Messages to bytes and back, with the type of every argument checked (specification, *Messages*).

A packet is the MessagePack array ``[message id, code, arguments]``; packets follow each other without
a length prefix. :class:`Decoder` takes bytes in any portions and gives whole messages. Whatever the
bytes are, it raises nothing but :class:`PeerError`, and its memory is bounded by its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgpack

from neo.protocol.enums import EXTENSION_TYPES
from neo.protocol.errors import PeerError
from neo.protocol.lengths import check_lengths
from neo.protocol.packets import BY_CODE, CODES, Message, Range

#: Before a peer has identified itself: the longest legitimate message is RequestIdentification.
LIMIT_STRANGER = 64 * 1024
#: Of a peer that said who it is, while the master does not vouch for it. The longest legitimate messages:
#: the partition table of a storage node that joins, and what a backup's node has of one transaction.
LIMIT_GUEST = 4 * 1024 * 1024
#: Afterwards. One object of 256 MiB, and transactions of millions of oids, must fit; memory must not
#: be at the mercy of a length field.
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

MAX_ID = 0xFFFFFFFF

_EXT = {
    item: msgpack.ExtType(number, bytes([item.value]))
    for number, enum in enumerate(EXTENSION_TYPES)
    for item in enum
}


def _encode_other(value: object) -> object:
    if isinstance(value, Enum):
        return _EXT[value]
    raise TypeError(f"{value!r} cannot travel in a message")


def _texts_to_bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (tuple, list)):
        return [_texts_to_bytes(item) for item in value]
    if isinstance(value, dict):
        return {_texts_to_bytes(k): _texts_to_bytes(v) for k, v in value.items()}
    return value


def encode(message_id: int, message: Message) -> bytes:
    """The bytes of one packet: texts become *bin*, enumerations extensions (FACTS 1). Any thread."""
    cls = type(message)
    arguments = _texts_to_bytes(message) if cls in _HAS_TEXT else message
    packed: bytes = msgpack.packb((message_id, CODES[cls], arguments), default=_encode_other)
    return packed


# -- types -----------------------------------------------------------------------------------------

Check = Callable[[Any], Any]
"""Takes the decoded value, returns it in its Python form, raises ValueError or TypeError."""


def _exact(cls: type) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not cls:
            raise TypeError(f"{cls.__name__} expected, got {_short(value)}")
        return value

    return check


def _integer(least: int, greatest: int) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not int:
            raise TypeError(f"int expected, got {_short(value)}")
        if not least <= value <= greatest:
            raise ValueError(f"{value} is not between {least} and {greatest}")
        return value

    return check


def _float(value: Any) -> float:
    # A whole number of seconds may travel as an integer.
    if type(value) is not float and type(value) is not int:
        raise TypeError(f"float expected, got {_short(value)}")
    if not isfinite(value):
        raise ValueError(f"{value} is no finite number")
    return float(value)


def _text(value: Any) -> str:
    if type(value) is not bytes:
        raise TypeError(f"text expected, got {_short(value)}")
    return value.decode("utf-8", "backslashreplace")


def _fixed(length: int) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not bytes or len(value) != length:
            raise TypeError(f"{length} bytes expected, got {_short(value)}")
        return value

    return check


def _any(value: Any) -> Any:
    """Texts inside free-form values are texts of people: names and paths."""
    if type(value) is bytes:
        return _text(value)
    if type(value) is list:
        return [_any(item) for item in value]
    if type(value) is dict:
        return {_any(key): _any(item) for key, item in value.items()}
    if type(value) is float:
        return _float(value)
    if value is None or isinstance(value, (int, Enum)):
        return value
    raise TypeError(f"no value of the protocol: {_short(value)}")


def _optional(inner: Check) -> Check:
    return lambda value: None if value is None else inner(value)


def _list(inner: Check) -> Check:
    def check(value: Any) -> list[Any]:
        if type(value) is not list:
            raise TypeError(f"array expected, got {_short(value)}")
        return [inner(item) for item in value]

    return check


def _row(inners: list[Check]) -> Check:
    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(inners):
            raise TypeError(f"array of {len(inners)} expected, got {_short(value)}")
        return tuple([inner(item) for inner, item in zip(inners, value, strict=True)])

    return check


class _Column(NamedTuple):
    """Values that need no conversion: their types, and their length or range where that is limited."""

    types: frozenset[type]
    length: int | None = None
    range: Range | None = None

    @classmethod
    def of(cls, hint: Any) -> _Column | None:
        """None if values of this annotation are converted."""
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            kind, limit = args
            if kind is int:
                return cls(frozenset([int]), range=limit)
            return cls(frozenset([bytes]), length=limit)
        if origin in (Union, UnionType):
            (inner,) = (arg for arg in args if arg is not NoneType)
            column = cls.of(inner)
            return column and column._replace(types=column.types | {NoneType})
        return cls(frozenset([hint])) if hint in (int, bool, bytes) else None

    def match(self, values: Sequence[Any]) -> bool:
        found = set(map(type, values))
        if not found <= self.types:
            return False
        if self.length is None and self.range is None:
            return True
        given = [v for v in values if v is not None] if NoneType in found else values
        if self.length is not None:
            return set(map(len, given)) <= {self.length}
        assert self.range is not None
        least, greatest = self.range
        return not given or (least <= min(given) and max(given) <= greatest)


class _Columns(NamedTuple):
    """A list of rows whose values come as they are."""

    columns: list[_Column]

    @classmethod
    def of(cls, hints: tuple[Any, ...]) -> _Columns | None:
        """None if values of some column are converted."""
        columns = [_Column.of(hint) for hint in hints]
        return None if None in columns else cls(columns)  # type: ignore[arg-type]

    def match(self, rows: list[Any]) -> bool:
        """Whether all rows are right. False says nothing about which is not, and why."""
        if set(map(type, rows)) != {list} or set(map(len, rows)) != {len(self.columns)}:
            return False
        return all(
            column.match(values)
            for column, values in zip(self.columns, zip(*rows, strict=True), strict=True)
        )


def _rows(hints: tuple[Any, ...]) -> Check:
    """A list of rows: column by column, which is four times as fast; if that fails, row by row, which
    tells what is wrong."""
    one_by_one = _list(_row([_checker(hint) for hint in hints]))
    columns = _Columns.of(hints)
    if columns is None:
        return one_by_one

    def check(value: Any) -> list[tuple[Any, ...]]:
        if type(value) is list and value and columns.match(value):
            return list(map(tuple, value))
        checked: list[tuple[Any, ...]] = one_by_one(value)
        return checked

    return check


def _map(key: Check, inner: Check) -> Check:
    def check(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise TypeError(f"map expected, got {_short(value)}")
        return {key(k): inner(v) for k, v in value.items()}

    return check


def _short(value: object) -> str:
    """For people, in bounded time whatever the value is."""
    if isinstance(value, bytes):
        return repr(value) if len(value) <= 24 else f"{value[:24]!r}... ({len(value)} bytes)"
    if isinstance(value, (list, dict)):
        return f"{'an array' if isinstance(value, list) else 'a map'} of {len(value)}"
    return repr(value)


def _checker(hint: Any) -> Check:
    """The check of a field from its annotation in the table of messages."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, limit = args
        return _integer(*limit) if kind is int else _fixed(limit)
    if origin in (Union, UnionType):
        (inner,) = (arg for arg in args if arg is not NoneType)
        return _optional(_checker(inner))
    if origin is list:
        if get_origin(args[0]) is tuple:
            return _rows(get_args(args[0]))
        return _list(_checker(args[0]))
    if origin is tuple:
        return _row([_checker(arg) for arg in args])
    if origin is dict:
        return _map(_checker(args[0]), _checker(args[1]))
    if hint is Any:
        return _any
    if hint is NoneType:
        return _exact(NoneType)
    return {float: _float, str: _text}.get(hint) or _exact(hint)


def _fields(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _mentions_text(hint: Any) -> bool:
    return hint is str or hint is Any or any(_mentions_text(arg) for arg in get_args(hint))


_HAS_TEXT = frozenset(
    cls for cls in CODES if any(_mentions_text(hint) for hint in _fields(cls).values())
)
_CHECKS: dict[int, tuple[type[Message], tuple[Check, ...]]] = {
    code: (cls, tuple(_checker(hint) for hint in _fields(cls).values()))
    for code, cls in BY_CODE.items()
}


# -- decoding --------------------------------------------------------------------------------------


class Packet(NamedTuple):
    """``message_id`` is None only in an Error that answers no message at all (FACTS 2.5)."""

    message_id: int | None
    message: Message


def _extension(number: int, data: bytes) -> Enum:
    if 0 <= number < len(EXTENSION_TYPES) and len(data) == 1:
        try:
            return EXTENSION_TYPES[number](data[0])
        except ValueError:
            pass
    raise PeerError(f"unknown enumeration item: extension type {number}, data {data[:8].hex()}")


def parse(packet: Any) -> Packet:
    """Check a decoded packet against the table. Raises PeerError naming message and argument."""
    if type(packet) is not list or len(packet) != 3:
        raise PeerError(f"not a NEO packet (an array of 3 is expected): {_short(packet)}")
    message_id, code, arguments = packet
    if type(code) is not int or type(arguments) is not list:
        raise PeerError(f"not a NEO packet (id, code, arguments): {_short(packet)}")
    known = _CHECKS.get(code)
    if known is None:
        raise PeerError(f"unknown message code {code:#x}")
    cls, checks = known
    if type(message_id) is not int and not (message_id is None and code == 0x8000):
        raise PeerError(f"{cls.__name__}: message id is {_short(message_id)}")
    if len(arguments) != len(checks):
        raise PeerError(f"{cls.__name__}: {len(checks)} arguments expected, got {len(arguments)}")
    try:
        values = [check(value) for check, value in zip(checks, arguments, strict=True)]
    except (TypeError, ValueError, RecursionError) as e:
        raise PeerError(f"{cls.__name__}: wrong argument: {e}") from None
    return Packet(message_id, cls(*values))


class Decoder:
    """Bytes in, packets out. ``limit``: bytes of the longest message that is accepted."""

    def __init__(self, limit: int) -> None:
        #: Bytes of the last whole message.
        self.size = 0
        self._start(limit)

    def _start(self, limit: int) -> None:
        items = min(limit // ITEM_BYTES, ITEMS_PEER)
        self._limit = limit
        self._later = 0  # the limit that is wanted, after a message of which the beginning is read
        self._unpacker = msgpack.Unpacker(
            raw=True,  # the reference reads str and bin alike
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
        self._done = 0  # bytes of whole messages
        self._recent: bytes | bytearray | memoryview = b""
        # The beginning of an incomplete message, all of it below LIMIT_STRANGER.
        self._head = bytearray()

    @property
    def incomplete(self) -> int:
        """Bytes that wait for the rest of their message, if all whole messages were taken."""
        return self._fed - self._done

    def raise_limit(self, limit: int) -> None:
        """Accept longer messages from here on, or after one of which more than LIMIT_STRANGER is here."""
        if self._head and self.incomplete > len(self._head):
            self._later = limit
            return
        rest = bytes(self._head) or self._unpacker.read_bytes(self._limit)
        self._start(limit)
        self.feed(rest)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Raises PeerError when more than the limit waits for its end."""
        self._fed += len(data)
        self._recent = data
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull:
            raise PeerError(f"message of more than {self._limit} bytes") from None

    @property
    def position(self) -> int:
        """Bytes of the whole messages that were given."""
        return self._done

    def __iter__(self) -> Iterator[Packet]:
        return self

    def __next__(self) -> Packet:
        """The next whole message. Raises StopIteration when more bytes are needed."""
        if self._fed == self._done:
            raise StopIteration
        try:
            packet = self._unpacker.unpack()
        except msgpack.OutOfData:
            self._check_incomplete()
            raise StopIteration from None
        except msgpack.StackError:
            raise PeerError("malformed message: nested too deeply") from None
        except (ValueError, TypeError, msgpack.FormatError) as e:
            # Lengths over the limits, bytes that no format uses, unhashable map keys...
            reason = f": {e}" if str(e) else ""
            raise PeerError(f"malformed message{reason}") from None
        done = self._unpacker.tell()
        self.size = done - self._done
        self._done = done
        if self._head:
            self._head.clear()
            if self._later:
                self.raise_limit(self._later)
        return parse(packet)

    def _check_incomplete(self) -> None:
        """The unpacker bounds its buffer, but not what it has already made of a message."""
        waiting = self._fed - self._done
        if waiting > self._limit:
            raise PeerError(f"message of more than {self._limit} bytes")
        looked = len(self._head)
        new = self._recent[max(0, len(self._recent) - waiting) :]
        self._head += new[: LIMIT_STRANGER - looked]
        self._recent = b""
        if looked < HEAD_BYTES:
            check_lengths(self._head[:HEAD_BYTES], self._limit)
