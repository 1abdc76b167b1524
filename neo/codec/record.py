"""Read one record of ZODB without its classes: class, references, state.

A record is two pickles that share a memo: the class of the object, and its state. References are their
persistent ids, in the forms that ``ZODB.serialize`` documents. :func:`decode` never imports a class of
the application and never runs code, whatever the bytes are (``stubs``, ``opcodes``). Errors are
returned in :attr:`Record.error`, never raised.
"""

from __future__ import annotations

import io
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

#: Bytes that a record may allocate beside the content of its opcodes: a multiple of its size, and a
#: constant.
ALLOWANCE_FACTOR = 16
ALLOWANCE_BASE = 16 << 20
#: Greatest length of an error, which is a column of a table.
ERROR_LENGTH_MAX = 200
#: Greatest oid, since oids are columns of signed integers. No storage allocates greater ones.
MAX_OID = b"\x7f" + b"\xff" * 7


class Reference(NamedTuple):
    """A reference to a persistent object."""

    #: "s" strong, "w" weak, "m" into another database of a multi-database.
    kind: str
    oid: int
    #: ``module.Class`` of the target, or None if the reference does not name it.
    class_name: str | None
    #: Name of the other database, or None.
    database: str | None


@dataclass(slots=True)
class Record:
    """A decoded record. ``state`` holds plain values, stubs and references (``neo.codec.state``)."""

    class_name: str | None
    references: list[Reference]
    state: object
    error: str | None


def decode(data: bytes) -> Record:
    """Read a whole record. Thread-safe: calls only share names of classes.

    Memory is bounded by 64 times the size of the record and 64 MiB; more is an error (``weight``,
    ``stubs``). The time is not bounded, because a record may hash the same keys again and again.
    """
    record = _decode(data)
    if record.error is not None and any(map(_may_be_class, record.references)):
        again = _decode(data, stub_references=True)
        record = again if again.error is None else record
    return record


def _decode(data: bytes, stub_references: bool = False) -> Record:
    references: list[Reference] = []
    name: str | None = None
    try:
        source = _source(data)
        unpickler = _unpickler(source, references, stub_references)
        name = class_name_of(_load(unpickler))
        if not source.peek(1):
            raise MalformedPickle("the record ends after its class and has no state")
        state = _load(unpickler)
    except Exception as error:  # noqa: BLE001
        # Hostile or damaged bytes make the unpickler raise any exception.
        return Record(name or class_of(data), references, None, _explain(error))
    return Record(name, references, state, None)


def decode_value(data: bytes) -> tuple[object, str | None]:
    """Return (value, error) of a single pickle, such as the extension of a transaction."""
    try:
        return _load(_unpickler(_source(data), [])), None
    except Exception as error:  # noqa: BLE001
        # See decode().
        return None, _explain(error)


_GLOBAL_FIRST = re.compile(rb"(?:\x80[\x00-\x03])?\(?c([\w.]{1,500})\n([\w.]{1,500})\n")


def class_of(data: bytes) -> str | None:
    """Return ``module.Class`` from the first bytes of a record, or None if they do not show it.

    For most records it is a search in a few bytes, twenty times faster than :func:`decode`.
    """
    match = _GLOBAL_FIRST.match(data)
    if match is not None:
        return b"%b.%b".__mod__(match.groups()).decode("ascii", "replace")
    try:
        return class_name_of(_load(_unpickler(_source(data), [])))
    except Exception:  # noqa: BLE001
        # decode() reports the reason.
        return None


def class_name_of(meta: object) -> str | None:
    """Return the class name in the content of a record's first pickle.

    The content is a class; or (class, arguments of ``__new__``); or ((module, name), arguments). The
    class of a persistent class is a reference, and named by it.
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


class _Source(io.BytesIO):
    """A record as a file with ``peek``, with which the C unpickler is twice as fast."""

    def peek(self, size: int) -> bytes:
        position = self.tell()
        return self.getvalue()[position : position + size]


def _source(data: bytes) -> _Source:
    """Check a record and set the memory allowance of this thread. Return it as a file."""
    refuse_heavy(data)
    allow(ALLOWANCE_FACTOR * len(data) + ALLOWANCE_BASE)
    return _Source(vet(data))


def _unpickler(source: _Source, references: list[Reference], stub_references: bool = False) -> Any:
    """Return an unpickler.

    zodbpickle reads strings of Python 2 (protocols up to 3) as text if they are text.
    """
    start = source.peek(2)
    if start[:1] == b"\x80" and start[1:] > b"\x03":
        return _Newer(source, references, stub_references)
    return _Older(source, references, stub_references)


def _may_be_class(reference: Reference) -> bool:
    """Return whether a reference may be a class: ZODB writes only the oid for persistent classes,
    among others.
    """
    return reference.kind != "w" and reference.class_name is None


def _persistent_name(reference: Reference) -> str:
    return f"persistent:{reference.oid:016x}"


class _Substitutes:
    """The callbacks of both unpicklers: substitutes for classes, and references for persistent ids.

    ``_classes``: None, or the stub types of this record for persistent classes. An unpickler only
    instantiates types, so each reference that may be a class then becomes a type.
    """

    _found: list[Reference]
    _classes: dict[Reference, type[Stub]] | None

    def find_class(self, module: str, name: str) -> Any:
        return find_class(module, name)

    def persistent_load(self, pid: object) -> object:
        reference = _reference(pid)
        self._found.append(reference)
        if self._classes is None or not _may_be_class(reference):
            return reference
        known = self._classes.get(reference)
        if known is None:
            name = _persistent_name(reference)
            known = self._classes[reference] = persistent_type(name, reference)
        return known


class _Newer(_Substitutes, pickle.Unpickler):
    def __init__(self, source: _Source, found: list[Reference], stub_references: bool) -> None:
        super().__init__(source, encoding="utf-8", errors="surrogateescape")
        self._found, self._classes = found, {} if stub_references else None


class _Older(_Substitutes, zodbpickle.fastpickle.Unpickler):
    def __init__(self, source: _Source, found: list[Reference], stub_references: bool) -> None:
        super().__init__(source, encoding="utf-8", errors="bytes")
        self._found, self._classes = found, {} if stub_references else None


def _load(unpickler: Any) -> object:
    """Run the unpickler on its next pickle.

    With a file that has ``peek``, errors in callbacks are wrapped in an uninformative SystemError.
    Raise the cause instead.
    """
    try:
        loaded: object = unpickler.load()
    except SystemError as error:
        raise (error.__cause__ or error) from None
    return loaded


def _reference(pid: object) -> Reference:
    """Return the reference that a persistent id means (``ZODB.serialize``, *Persistent references*)."""
    # Check pairs first, because nearly all references are pairs.
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
    """Copy text for a reference, because the original may be in the memo."""
    charge(CHARACTER_BYTES * len(text))
    return storable(text)


def _oid(oid: object) -> int:
    """Return an oid. Python 2 wrote oids as strings, which were read as UTF-8 where that was possible."""
    packed = oid if type(oid) is bytes else oid.encode() if isinstance(oid, str) else oid
    if not isinstance(packed, bytes) or len(packed) != 8 or packed > MAX_OID:
        # Show a part of a text, but only the type of other values, whose text may be endless.
        shown = repr(oid[:40]) if isinstance(oid, (str, bytes)) else type(oid).__name__
        raise MalformedPickle(f"a reference whose id is no oid: {shown}")
    return int.from_bytes(packed, "big")


def _target_class(target: object) -> str | None:
    if isinstance(target, type) and issubclass(target, Stub):
        return target.stands_for
    return None if target is None else class_name_of((target, None))


def _explain(error: Exception) -> str:
    text = str(error) or type(error).__name__
    kind = "" if isinstance(error, MalformedPickle) else f"{type(error).__name__}: "
    return storable((kind + text)[:ERROR_LENGTH_MAX])
