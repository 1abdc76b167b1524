"""Messages that stay objects, between two nodes of one process (:mod:`neo.node.local`).

:func:`detach` gives the receiver what decoding the bytes of the message would give: tuples and lists
where the table of messages says so, bytes of the exact type, and no list, map or buffer that the sender
has too.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec.structs import astuple

from neo.protocol.enums import EXTENSION_TYPES
from neo.protocol.packets import CODES, Message

#: Size of the fields that every message has, and of one item: what the encoding takes, roughly.
MESSAGE_BYTES = 32
ITEM_BYTES = 8
#: Types of values that nobody can change, and that decoding gives.
_EXACT = frozenset((bytes, str, int, bool, NoneType, *EXTENSION_TYPES))

_Copy = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _bytes(value: Any) -> Any:
    return value if type(value) is bytes else bytes(value)


def _free(value: Any) -> Any:
    """Return a free-form value as the decoder gives it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (list, tuple)):
        return [_free(item) for item in value]
    if isinstance(value, dict):
        return {_free(key): _free(item) for key, item in value.items()}
    return value


def _copier(hint: Any) -> _Copy:
    """Return the function that copies the values of an annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _copier(args[0])
    if origin is list:
        return _list(_copier(args[0]))
    if origin is tuple:
        return _row([_copier(arg) for arg in args])
    if origin is dict:
        return _map(_copier(args[0]), _copier(args[1]))
    if origin in (Union, UnionType):
        (inner,) = (arg for arg in args if arg is not NoneType)
        copy = _copier(inner)
        return copy if copy is _same else lambda value: None if value is None else copy(value)
    if hint is bytes:
        return _bytes
    if hint is float:
        return float
    return _free if hint is Any else _same


def _list(inner: _Copy) -> _Copy:
    return list if inner is _same else lambda value: [inner(item) for item in value]


def _row(inners: list[_Copy]) -> _Copy:
    if all(inner is _same for inner in inners):
        return tuple
    return lambda value: tuple([inner(item) for inner, item in zip(inners, value, strict=True)])


def _map(key: _Copy, inner: _Copy) -> _Copy:
    return lambda value: {key(k): inner(v) for k, v in value.items()}


def _flat(hint: Any) -> bool:
    """Return whether the values of an annotation are of the types of _EXACT."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _flat(args[0])
    if origin in (Union, UnionType):
        return all(map(_flat, args))
    return hint in _EXACT


def _hints(cls: type[Message]) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


_COPIERS = {cls: [_copier(hint) for hint in _hints(cls).values()] for cls in CODES}
_FLAT = frozenset(cls for cls in CODES if all(map(_flat, _hints(cls).values())))


def detach(message: Message) -> Message:
    """Return the message that a receiver may keep, whatever the sender does with its own."""
    cls = type(message)
    values = astuple(message)
    if cls in _FLAT and _EXACT.issuperset(map(type, values)):
        return message
    return cls(*[copy(value) for copy, value in zip(_COPIERS[cls], values, strict=True)])


def _long(hint: Any) -> bool:
    """Return whether the values of an annotation have no bound."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return False  # the annotations of texts and bytes are lengths
    if origin in (Union, UnionType):
        return any(map(_long, args))
    return origin is not None or hint in (bytes, str, Any)


def _measured(cls: type[Message]) -> Callable[[Any], Any] | None:
    names = [name for name, hint in _hints(cls).items() if _long(hint)]
    if not names:
        return None
    if len(names) == 1:
        return attrgetter(names[0])
    return attrgetter(*names)


_MEASURED = {cls: _measured(cls) for cls in CODES}


def size_of(message: Message) -> int:
    """Return about as many bytes as the message would have on the wire."""
    measured = _MEASURED[type(message)]
    return MESSAGE_BYTES if measured is None else MESSAGE_BYTES + _size(measured(message))


def _size(value: Any) -> int:
    if isinstance(value, (bytes, str)):
        return len(value) + 1
    if isinstance(value, (list, tuple)):
        return ITEM_BYTES + sum(map(_size, value))
    if isinstance(value, dict):
        return ITEM_BYTES + sum(map(_size, value)) + sum(map(_size, value.values()))
    return ITEM_BYTES
