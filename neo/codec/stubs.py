"""What stands in for the classes of an application, so that none is imported and no code runs.

Rules of this file. ``find_class`` hands a pickle only two kinds of things: a **stub type**, which
keeps what it is given and does nothing, and a :class:`Constructor` of the short list below, which
makes plain values. Neither has an attribute that a pickle can set: BUILD on a type calls
``__setstate__`` without a state and fails, on a constructor it is refused. So one record cannot change
how the next is read. Whatever can multiply bytes is charged to the :class:`Allowance` of its record.
"""

from __future__ import annotations

import datetime
import decimal
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from neo.codec.opcodes import MalformedPickle

#: Names of classes are few in a database; hostile records may invent as many as they like.
STUB_TYPES_MAX = 10_000


class Stub:
    """An instance of a class that is not imported: what the pickle said about it."""

    __slots__ = ("args", "items", "pairs", "state")
    #: ``module.Class`` of the class that the stub stands for, storable.
    stands_for: ClassVar[str] = ""
    args: tuple[object, ...]
    state: object
    items: list[object]
    pairs: list[tuple[object, object]]

    def __new__(cls, *args: object, **keywords: object) -> Stub:
        stub = object.__new__(cls)
        stub.args = (*args, keywords) if keywords else args
        stub.state = None
        stub.items = []
        stub.pairs = []
        return stub

    def __setstate__(self, state: object) -> None:
        self.state = state

    def append(self, item: object) -> None:
        self.items.append(item)

    def extend(self, items: list[object]) -> None:
        self.items.extend(items)

    add = append

    def __setitem__(self, key: object, value: object) -> None:
        self.pairs.append((key, value))


@functools.lru_cache(maxsize=STUB_TYPES_MAX)
def stub_type(module: str, name: str) -> type[Stub]:
    """Return the stub type that stands for the class ``name`` of ``module``."""
    return type("StubOf", (Stub,), {"__slots__": (), "stands_for": storable(f"{module}.{name}")})


def storable(text: str) -> str:
    """Pickles hold lone surrogates, which no column of text and no file can."""
    return text.encode("utf-8", "backslashreplace").decode()


class Allowance:
    """How many bytes or items the constructors of one record may still copy.

    Each call costs an opcode or two and may copy a large value again, so that a small record could
    fill the memory. A true record copies each of its values once.
    """

    __slots__ = ("left",)

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, value: object) -> None:
        self.left -= 16 + (len(value) if isinstance(value, (str, bytes, list, tuple, set)) else 0)
        if self.left < 0:
            raise MalformedPickle("the record makes much more than it holds")


class Constructor:
    """A function of the short list, with an allowance. No pickle can change it."""

    __slots__ = ("_allowance", "_make", "stands_for")

    def __init__(self, name: str, make: Callable[..., object], allowance: Allowance) -> None:
        self.stands_for = name
        self._make = make
        self._allowance = allowance

    def __call__(self, *args: object) -> object:
        for arg in args:
            self._allowance.take(arg)
        return self._make(*args)

    def __setstate__(self, state: object) -> None:
        raise MalformedPickle("a state for what has none")


class ZonedDatetime:
    """A datetime or time whose zone is an object of a class that is not imported."""

    __slots__ = ("naive", "zone")

    def __init__(self, naive: datetime.datetime | datetime.time, zone: Stub | type[Stub]) -> None:
        self.naive = naive
        self.zone = zone

    def __setstate__(self, state: object) -> None:
        raise MalformedPickle("a state for what has none")


def _moment(make: Callable[..., Any]) -> Callable[..., object]:
    def moment(*args: object) -> object:
        # Python 2 wrote the ten bytes as a string, which was read as UTF-8 where that was possible.
        packed = args[0].encode() if args and isinstance(args[0], str) else None
        args = args if packed is None else (packed, *args[1:])
        zone = args[-1] if args else None
        if isinstance(zone, Stub) or (isinstance(zone, type) and issubclass(zone, Stub)):
            return ZonedDatetime(make(*args[:-1]), zone)
        return make(*args)

    return moment


def _encode(text: str, encoding: str = "latin1", *errors: str) -> bytes:
    if encoding.lower() not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise MalformedPickle(f"an encoding that no pickler writes: {encoding[:40]!r}")
    return text.encode(encoding)


def _bytes(content: object = b"", *encoding: str) -> bytes:
    """``bytes`` as picklers use it: of bytes, of a list of small integers, of text (Python 2)."""
    if isinstance(content, str) and encoding:
        return _encode(content, *encoding)
    if not isinstance(content, (bytes, bytearray, list, tuple)):
        raise MalformedPickle(f"bytes of {type(content).__name__}")
    return bytes(content)


def _bytearray(content: object = b"", *encoding: str) -> bytearray:
    return bytearray(_bytes(content, *encoding))


def _collection(make: Callable[[Any], object]) -> Callable[..., object]:
    def collection(content: object = ()) -> object:
        if not isinstance(content, (list, tuple, set, frozenset)):
            raise MalformedPickle(f"a collection of {type(content).__name__}")
        return make(content)

    return collection


def _reconstruct(cls: object, base: object, state: object) -> object:
    """``copyreg._reconstructor``: how protocols 0 and 1 make an instance."""
    if not (isinstance(cls, type) and issubclass(cls, Stub)):
        raise MalformedPickle("an instance of what is no class")
    return cls() if state is None else cls(state)


def _newobj(cls: object, *args: object) -> object:
    """``copyreg.__newobj__``, as protocols below 2 call it."""
    if not (isinstance(cls, type) and issubclass(cls, Stub)):
        raise MalformedPickle("an instance of what is no class")
    return cls(*args)


def _getattr(owner: object, name: object) -> object:
    """A class inside a class, as protocols below 4 name it: only names are joined."""
    if isinstance(owner, type) and issubclass(owner, Stub) and isinstance(name, str):
        return stub_type(owner.stands_for, name)
    raise MalformedPickle("an attribute of what is no class")


_PLAIN: Mapping[str, Callable[..., object]] = {
    "datetime.datetime": _moment(datetime.datetime),
    "datetime.time": _moment(datetime.time),
    "datetime.date": _moment(datetime.date),
    "datetime.timedelta": datetime.timedelta,
    "datetime.timezone": datetime.timezone,
    "decimal.Decimal": decimal.Decimal,
    "cdecimal.Decimal": decimal.Decimal,
    "_codecs.encode": _encode,
    "copyreg._reconstructor": _reconstruct,
    "copy_reg._reconstructor": _reconstruct,
    "copyreg.__newobj__": _newobj,
    "copy_reg.__newobj__": _newobj,
    "zodbpickle.binary": _bytes,
}
_BUILTINS: Mapping[str, Callable[..., object]] = {
    "set": _collection(set),
    "frozenset": _collection(frozenset),
    "bytes": _bytes,
    "bytearray": _bytearray,
    "complex": complex,
    "getattr": _getattr,
}
CONSTRUCTORS: Mapping[str, Callable[..., object]] = {
    **_PLAIN,
    **{f"builtins.{name}": make for name, make in _BUILTINS.items()},
    **{f"__builtin__.{name}": make for name, make in _BUILTINS.items()},
}


def find_class(module: object, name: object, allowance: Allowance) -> Constructor | type[Stub]:
    """Return what stands for the global ``name`` of ``module``; nothing is imported."""
    if not (isinstance(module, str) and isinstance(name, str)):
        raise MalformedPickle("the name of a class is no text")
    full_name = f"{module}.{name}"
    make = CONSTRUCTORS.get(full_name)
    return stub_type(module, name) if make is None else Constructor(full_name, make, allowance)
