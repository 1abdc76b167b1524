"""One record of ZODB read without its classes: class, references, state.

A record is two pickles that share a memo: what class the object has, and its state. References are
the persistent ids in them, in the forms that ``ZODB.serialize`` documents. :func:`decode` never
imports a class of the application and never runs code, whatever the bytes are (``stubs``,
``opcodes``); what cannot be read is said in :attr:`Record.error`, never raised.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import zodbpickle.fastpickle

from neo.codec.opcodes import MalformedPickle, vet
from neo.codec.stubs import (
    CHARACTER_BYTES,
    Constructor,
    Stub,
    allow,
    charge,
    find_class,
    persistent_type,
    storable,
)
from neo.codec.weight import refuse_heavy

#: What a record may make beside what its opcodes hold, in bytes: so many times its size, and so many.
ALLOWANCE_FACTOR = 16
ALLOWANCE_BASE = 16 << 20
#: Errors are a column of a table: a line, not the record once more.
ERROR_LENGTH_MAX = 200
#: Oids are columns of signed integers; no storage has given out a greater one.
MAX_OID = b"\x7f" + b"\xff" * 7


class Reference(NamedTuple):
    """A reference to a persistent object."""

    #: "s" strong, "w" weak, "m" into another database of a multi-database.
    kind: str
    oid: int
    #: ``module.Class`` of the target as the reference says, or None when it does not.
    class_name: str | None
    #: Name of the other database, or None.
    database: str | None


@dataclass(slots=True)
class Record:
    """What a record says. ``state`` holds plain values, stubs and references (``neo.codec.state``)."""

    class_name: str | None
    references: list[Reference]
    state: object
    error: str | None


def decode(data: bytes) -> Record:
    """Read a record whole. Any thread; nothing is shared between calls but names of classes.

    Takes at most 64 times its size and 64 MiB of memory, more is an error (``weight``, ``stubs``). How
    long it takes is not bounded: it is the record that says how often which keys are hashed.
    """
    record = _decode(data, None)
    if record.error is not None and any(map(_may_be_class, record.references)):
        again = _decode(data, _Classes())
        record = again if again.error is None else record
    return record


def _decode(data: bytes, classes: _Classes | None) -> Record:
    references: list[Reference] = []
    name: str | None = None
    try:
        source = _source(data)
        unpickler = _unpickler(source, references, classes)
        name = class_name_of(_load(unpickler))
        if source.position >= len(source.data):
            raise MalformedPickle("the record ends behind its class: no state")
        state = _load(unpickler)
    except Exception as error:  # noqa: BLE001
        # Hostile or damaged bytes make the unpickler raise anything; none of it is ours.
        return Record(name or class_of(data), references, None, _explain(error))
    return Record(name, references, state, None)


def decode_value(data: bytes) -> tuple[object, str | None]:
    """(value, error) of one pickle alone, such as the extension of a transaction."""
    try:
        return _load(_unpickler(_source(data), [])), None
    except Exception as error:  # noqa: BLE001
        # As in decode().
        return None, _explain(error)


_GLOBAL_FIRST = re.compile(rb"(?:\x80[\x00-\x03])?\(?c([\w.]{1,500})\n([\w.]{1,500})\n")


def class_of(data: bytes) -> str | None:
    """Return ``module.Class`` of a record from its first bytes, or None when they do not tell.

    For most records a search in a few bytes, twenty times faster than :func:`decode`.
    """
    match = _GLOBAL_FIRST.match(data)
    if match is not None:
        return b"%b.%b".__mod__(match.groups()).decode("ascii", "replace")
    try:
        return class_name_of(_load(_unpickler(_source(data), [])))
    except Exception:  # noqa: BLE001
        # The reason is told where the whole record is read.
        return None


def class_name_of(meta: object) -> str | None:
    """Return the name in what the first pickle of a record holds.

    A class; or (class, arguments of ``__new__``); or ((module, name), arguments); the class of a
    persistent class is a reference, and named by it.
    """
    if isinstance(meta, tuple) and len(meta) == 2 and not isinstance(meta, Reference):
        meta = meta[0]
        if isinstance(meta, tuple) and len(meta) == 2 and all(isinstance(x, str) for x in meta):
            return _copied(f"{meta[0]}.{meta[1]}")
    if isinstance(meta, tuple) and meta and not isinstance(meta, Reference):
        meta = meta[0]
    if isinstance(meta, Reference):
        return _persistent_name(meta)
    if isinstance(meta, Constructor) or (isinstance(meta, type) and issubclass(meta, Stub)):
        return meta.stands_for
    raise MalformedPickle("the first pickle of the record is no class")


class _Source:
    """A record as a file. The C unpickler reads ahead from whatever has ``peek``: twice as fast."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def read(self, size: int = -1) -> bytes:
        start = self.position
        end = len(self.data) if size < 0 else min(start + size, len(self.data))
        self.position = end
        return self.data[start:end]

    def peek(self, size: int) -> bytes:
        return self.data[self.position : self.position + size]

    def readline(self) -> bytes:
        end = self.data.find(b"\n", self.position) + 1
        return self.read(-1 if end == 0 else end - self.position)

    def readinto(self, buffer: bytearray) -> int:
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def _source(data: bytes) -> _Source:
    """A record that this thread may read: it is refused before it can exhaust memory or stack."""
    refuse_heavy(data)
    allow(ALLOWANCE_FACTOR * len(data) + ALLOWANCE_BASE)
    return _Source(vet(data))


def _unpickler(
    source: _Source, references: list[Reference], classes: _Classes | None = None
) -> Any:
    """Protocols up to 3 hold strings of Python 2, which zodbpickle reads: as text where it is text."""
    protocol = source.data[1] if source.data[:1] == b"\x80" and len(source.data) > 1 else 0
    if protocol > 3:
        return _Newer(source, references, classes)
    return _Older(source, references, classes)


def _may_be_class(reference: Reference) -> bool:
    """ZODB writes the oid alone for a class that is a persistent object, but not only for those."""
    return reference.kind != "w" and reference.class_name is None


class _Classes:
    """Of a record that makes instances of classes which are persistent objects. An unpickler makes
    instances of nothing but types, so each reference that may be a class is one."""

    def __init__(self) -> None:
        self._known: dict[Reference, type[Stub]] = {}

    def stub(self, reference: Reference) -> object:
        if not _may_be_class(reference):
            return reference
        known = self._known.get(reference)
        if known is None:
            name = _persistent_name(reference)
            known = self._known[reference] = persistent_type(name, reference)
        return known


def _persistent_name(reference: Reference) -> str:
    return f"persistent:{reference.oid:016x}"


class _Newer(pickle.Unpickler):
    def __init__(self, source: _Source, found: list[Reference], classes: _Classes | None) -> None:
        super().__init__(source, encoding="utf-8", errors="surrogateescape")
        self._found = found
        self._classes = classes

    def find_class(self, module: str, name: str) -> Any:
        return find_class(module, name)

    def persistent_load(self, pid: object) -> object:
        reference = _reference(pid)
        self._found.append(reference)
        return reference if self._classes is None else self._classes.stub(reference)


class _Older(zodbpickle.fastpickle.Unpickler):
    def __init__(self, source: _Source, found: list[Reference], classes: _Classes | None) -> None:
        super().__init__(source, encoding="utf-8", errors="bytes")
        self._found = found
        self._classes = classes

    def find_class(self, module: str, name: str) -> Any:
        return find_class(module, name)

    def persistent_load(self, pid: object) -> object:
        reference = _reference(pid)
        self._found.append(reference)
        return reference if self._classes is None else self._classes.stub(reference)


def _load(unpickler: Any) -> object:
    """Run the unpickler on its next pickle.

    With a file that has ``peek``, an error inside a callback comes wrapped in a SystemError that
    says nothing: its cause does.
    """
    try:
        loaded: object = unpickler.load()
    except SystemError as error:
        raise (error.__cause__ or error) from None
    return loaded


def _reference(pid: object) -> Reference:
    """Return the reference that a persistent id means (``ZODB.serialize``, *Persistent references*)."""
    # Nearly all are pairs: they do not wait for the other forms.
    if type(pid) is tuple and len(pid) == 2:
        oid, target = pid
        return Reference("s", _oid(oid), _target_class(target), None)
    match pid:
        case ["w", (oid,)]:
            return Reference("w", _oid(oid), None, None)
        case ["w", (oid, database)] if isinstance(database, str):
            return Reference("w", _oid(oid), None, _copied(database))
        case ["m", (database, oid, target)] if isinstance(database, str):
            return Reference("m", _oid(oid), _target_class(target), _copied(database))
        case ["n", (database, oid)] if isinstance(database, str):
            return Reference("m", _oid(oid), None, _copied(database))
        case [oid] if isinstance(pid, list):
            return Reference("w", _oid(oid), None, None)
    return Reference("s", _oid(pid), None, None)


def _copied(text: str) -> str:
    """Text that a reference has for itself, while its origin may be in the memo."""
    charge(CHARACTER_BYTES * len(text))
    return storable(text)


def _oid(oid: object) -> int:
    """Python 2 wrote oids as strings, which were read as UTF-8 where that was possible."""
    packed = oid if type(oid) is bytes else oid.encode() if isinstance(oid, str) else oid
    if not isinstance(packed, bytes) or len(packed) != 8 or packed > MAX_OID:
        # Of text a part; of anything else no more than its type, as it may be endless when written.
        shown = repr(oid[:40]) if isinstance(oid, (str, bytes)) else type(oid).__name__
        raise MalformedPickle(f"a reference to what is no oid: {shown}")
    return int.from_bytes(packed, "big")


def _target_class(target: object) -> str | None:
    if isinstance(target, type) and issubclass(target, Stub):
        return target.stands_for
    return None if target is None else class_name_of((target, None))


def _explain(error: Exception) -> str:
    text = str(error) or type(error).__name__
    kind = "" if isinstance(error, MalformedPickle) else f"{type(error).__name__}: "
    return storable((kind + text)[:ERROR_LENGTH_MAX])
