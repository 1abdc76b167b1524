"""Substitutes for the classes of an application, so that none is imported and no code runs.

Rules of this file. ``find_class`` gives a pickle only two kinds of objects: a **stub type**, which
stores its arguments and does nothing, and a :class:`Constructor` of the short list below, which makes
plain values. A pickle cannot set attributes on either: BUILD on a type calls ``__setstate__`` without
a state and fails; on a constructor it is refused. So a record cannot change how the next one is read.
Operations that copy content of the record are charged to its allowance, because an opcode or two may
copy a large value.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from sys import getsizeof
from threading import local
from typing import Any, ClassVar

from neo.codec.opcodes import MalformedPickle

#: Bounds of cached types, because hostile records may invent any number of class names. Only types with
#: short names are cached: 30 MB at most.
STUB_TYPES_MAX = 10_000
NAME_LENGTH_MAX = 200
#: Bytes of a type, and of a character of its name (escaped).
TYPE_BYTES = 2_048
CHARACTER_BYTES = 8
#: A pair of a mapping that is not imported.
PAIR_BYTES = 64


class _Allowance(local):
    """The allowance of the record that a thread reads.

    It belongs to the thread, because stub types are shared by all records and the unpickler
    instantiates them.
    """

    left = 0


_allowance = _Allowance()


def allow(size: int) -> None:
    """Let the record that this thread reads next allocate ``size`` bytes beside its own content."""
    _allowance.left = size


def charge(size: int) -> None:
    """Raise :class:`MalformedPickle` when the record of this thread has used up its allowance."""
    left = _allowance.left = _allowance.left - size
    if left < 0:
        raise MalformedPickle("the record expands to far more memory than its size")


class Stub:
    """An instance of a class that is not imported, with the data of the pickle."""

    __slots__ = ("args", "items", "pairs", "state")
    #: ``module.Class`` of the replaced class, storable.
    stands_for: ClassVar[str] = ""
    #: The reference (``record.Reference``) to a class that is a persistent object.
    reference: ClassVar[Any] = None
    args: tuple[object, ...]
    state: object
    items: list[object]
    pairs: list[tuple[object, object]]

    def __new__(cls, *args: object, **keywords: object) -> Stub:
        stub = object.__new__(cls)
        if args or keywords:
            # Copy, because the original may be in the memo.
            charge(getsizeof(args) + getsizeof(keywords))
            args = (*args, keywords) if keywords else args
        stub.args = args
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
        charge(PAIR_BYTES)
        self.pairs.append((key, value))


_stub_types: dict[tuple[str, str], type[Stub]] = {}


def stub_type(module: str, name: str) -> type[Stub]:
    """Return the stub type for the class ``name`` of ``module``."""
    known = _stub_types.get((module, name))
    if known is not None:
        return known
    length = len(module) + len(name)
    charge(TYPE_BYTES + CHARACTER_BYTES * length)
    made = type("StubOf", (Stub,), {"__slots__": (), "stands_for": storable(f"{module}.{name}")})
    if length <= NAME_LENGTH_MAX:
        if len(_stub_types) >= STUB_TYPES_MAX:
            _stub_types.clear()
        _stub_types[module, name] = made
    return made


def persistent_type(name: str, reference: object) -> type[Stub]:
    """Return a stub type, for one record, for a class that is a persistent object."""
    charge(TYPE_BYTES)
    space = {"__slots__": (), "stands_for": name, "reference": reference}
    return type("StubOf", (Stub,), space)


def storable(text: str) -> str:
    """Escape lone surrogates, which columns of text and files cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class Constructor:
    """A function of the short list, which no pickle can change."""

    __slots__ = ("_make", "stands_for")

    def __init__(self, name: str, make: Callable[..., object]) -> None:
        self.stands_for = name
        self._make = make

    def __call__(self, *args: object) -> object:
        made = self._make(*args)
        charge(getsizeof(made))
        return made

    def __setstate__(self, state: object) -> None:
        raise MalformedPickle("a state is set on a value that has none")


class ZonedDatetime:
    """A datetime or time whose zone belongs to a class that is not imported."""

    __slots__ = ("naive", "zone")

    def __init__(self, naive: datetime.datetime | datetime.time, zone: Stub | type[Stub]) -> None:
        self.naive = naive
        self.zone = zone

    def __setstate__(self, state: object) -> None:
        raise MalformedPickle("a state is set on a value that has none")


def _moment(make: Callable[..., Any]) -> Callable[..., object]:
    def moment(*args: object) -> object:
        # Python 2 wrote the ten bytes as a string, which was read as UTF-8 if that was possible.
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


def _decimal(text: object) -> decimal.Decimal:
    if not isinstance(text, str):
        raise MalformedPickle(f"a decimal is made of a value of type {type(text).__name__}")
    return decimal.Decimal(text)


def _bytes(content: object = b"", *encoding: str) -> bytes:
    """Return ``bytes`` as picklers make it: of bytes, of a list of small integers, of text (Python 2)."""
    if isinstance(content, str) and encoding:
        return _encode(content, *encoding)
    if not isinstance(content, (bytes, bytearray, list, tuple)):
        raise MalformedPickle(f"bytes are made of a value of type {type(content).__name__}")
    return bytes(content)


def _bytearray(content: object = b"", *encoding: str) -> bytearray:
    return bytearray(_bytes(content, *encoding))


def _collection(make: Callable[[Any], object]) -> Callable[..., object]:
    def collection(content: object = ()) -> object:
        if not isinstance(content, (list, tuple, set, frozenset)):
            raise MalformedPickle(f"a collection is made of a value of type {type(content).__name__}")
        return make(content)

    return collection


def _reconstruct(cls: object, base: object, state: object) -> object:
    """Make an instance as protocols 0 and 1 do (``copyreg._reconstructor``)."""
    return _newobj(cls) if state is None else _newobj(cls, state)


def _newobj(cls: object, *args: object) -> object:
    """Make an instance as protocols below 2 do (``copyreg.__newobj__``)."""
    if not (isinstance(cls, type) and issubclass(cls, Stub)):
        raise MalformedPickle("an instance is made of a value that is no class")
    return cls(*args)


def _getattr(owner: object, name: object) -> object:
    """Return a nested class as protocols below 4 name it; join the names only."""
    if isinstance(owner, type) and issubclass(owner, Stub) and isinstance(name, str):
        return stub_type(owner.stands_for, name)
    raise MalformedPickle("an attribute is read from a value that is no class")


_PLAIN: Mapping[str, Callable[..., object]] = {
    "datetime.datetime": _moment(datetime.datetime),
    "datetime.time": _moment(datetime.time),
    "datetime.date": _moment(datetime.date),
    "datetime.timedelta": datetime.timedelta,
    "datetime.timezone": datetime.timezone,
    "decimal.Decimal": _decimal,
    "cdecimal.Decimal": _decimal,
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
CONSTRUCTORS: Mapping[str, Constructor] = {
    name: Constructor(name, make)
    for name, make in (
        *_PLAIN.items(),
        *((f"builtins.{name}", make) for name, make in _BUILTINS.items()),
        *((f"__builtin__.{name}", make) for name, make in _BUILTINS.items()),
    )
}


def find_class(module: object, name: object) -> Constructor | type[Stub]:
    """Return the substitute for the global ``name`` of ``module``; import nothing."""
    if not (isinstance(module, str) and isinstance(name, str)):
        raise MalformedPickle("the name of a class is not text")
    return CONSTRUCTORS.get(f"{module}.{name}") or stub_type(module, name)
