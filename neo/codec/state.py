"""The state of a record as JSON, with a bound on everything.

A pickle of a few bytes can hold a structure that is endless when it is written out (shared parts,
cycles). So a :class:`Budget` counts nodes, depth and text while the state is walked. What JSON does not
know is an object with one key that begins with ``$``:

``$ref`` ``$weak`` oid of a reference (with ``db`` or ``class`` where known) · ``$class`` an instance
(``state``, ``args``, ``items``, ``pairs`` where it has them) or, alone, a class · ``$bytes`` base64 ·
``$int`` decimal text of an integer beyond 64 bits · ``$float`` nan, inf, -inf · ``$str`` text with lone
surrogates, escaped · ``$map`` pairs of a mapping whose keys are not all plain text · ``$set`` ·
``$datetime`` ``$date`` ``$time`` ``$timedelta`` ISO 8601 (``zone``) · ``$decimal`` · ``$complex``.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable
from typing import Any

from neo.codec.buckets import flatten
from neo.codec.record import Record, Reference, decode_value
from neo.codec.stubs import Constructor, Stub, ZonedDatetime

#: Values in one state. A bucket of a BTree has a few hundred; a large catalogue entry some thousands.
NODES_MAX = 100_000
#: Levels: Python's own recursion limit is ten times as high.
DEPTH_MAX = 100
#: Characters of text in one state, after base64: a column that Spark can still hold.
TEXT_MAX = 16 << 20
#: Integers that JSON readers take: signed 64 bits.
_INT_BITS = 63
#: Writing an integer in decimal takes time with the square of its length.
_DECIMAL_BITS_MAX = 8_192


class BudgetExceeded(ValueError):
    """The state is larger than its reader allows."""


class Budget:
    """Counts what one state may still cost."""

    __slots__ = ("nodes", "text")

    def __init__(self, nodes: int = NODES_MAX, text: int = TEXT_MAX) -> None:
        self.nodes = nodes
        self.text = text

    def node(self, depth: int) -> None:
        self.nodes -= 1
        if self.nodes < 0:
            raise BudgetExceeded("the state has more values than the budget allows")
        if depth > DEPTH_MAX:
            raise BudgetExceeded(f"the state nests deeper than {DEPTH_MAX} levels, or in a circle")

    def characters(self, text: str | bytes | bytearray) -> None:
        self.text -= len(text)
        if self.text < 0:
            raise BudgetExceeded("the state has more text than the budget allows")


def state_json(record: Record, budget: Budget | None = None) -> str | None:
    """Return the state of a record as JSON text (ASCII), or None when it has none.

    Raise :class:`BudgetExceeded` when it is larger than the budget.
    """
    if record.error is not None:
        return None
    return _dumps(flatten(record.class_name or "", record.state), budget or Budget())


def value_json(data: bytes) -> str:
    """Return one pickle as JSON, such as the extension of a transaction; if it cannot be read, an
    object ``{"$error": reason}``."""
    value, error = decode_value(data)
    if error is None:
        try:
            return _dumps(value, Budget())
        except BudgetExceeded as e:
            error = str(e)
    return json.dumps({"$error": error})


def _dumps(value: object, budget: Budget) -> str:
    return json.dumps(plain(value, budget, 0), separators=(",", ":"), allow_nan=False)


def plain(value: object, budget: Budget, depth: int) -> Any:
    """Return ``value`` of what JSON knows: the walk of this module's text."""
    budget.node(depth)
    write = _WRITERS.get(type(value))
    if write is not None:
        return write(value, budget, depth)
    if isinstance(value, Stub):
        return _instance(value, budget, depth)
    if isinstance(value, type) and issubclass(value, Stub):
        return {"$class": value.stands_for}
    raise BudgetExceeded(f"a value of type {type(value).__name__}, which no pickle makes")


def _text(value: str, budget: Budget, depth: int) -> object:
    budget.characters(value)
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"$str": value.encode("unicode_escape").decode("ascii")}
    return value


def _bytes(value: bytes | bytearray, budget: Budget, depth: int) -> object:
    budget.characters(value)
    return {"$bytes": base64.b64encode(value).decode("ascii")}


def _int(value: int, budget: Budget, depth: int) -> object:
    if value.bit_length() <= _INT_BITS:
        return value
    digits = str(value) if value.bit_length() <= _DECIMAL_BITS_MAX else hex(value)
    budget.characters(digits)
    return {"$int": digits}


def _float(value: float, budget: Budget, depth: int) -> object:
    return value if math.isfinite(value) else {"$float": str(value)}


def _list(value: list[object] | tuple[object, ...], budget: Budget, depth: int) -> object:
    return [plain(item, budget, depth + 1) for item in value]


def _set(value: set[object] | frozenset[object], budget: Budget, depth: int) -> object:
    items = [plain(item, budget, depth + 1) for item in value]
    return {"$set": sorted(items, key=lambda item: json.dumps(item, sort_keys=True))}


def _mapping(value: dict[object, object], budget: Budget, depth: int) -> object:
    if all(type(key) is str and key[:1] != "$" for key in value):
        written = {}
        for key, item in value.items():
            name = _text(str(key), budget, depth)
            if not isinstance(name, str):
                break
            written[name] = plain(item, budget, depth + 1)
        else:
            return written
    return {"$map": _pairs(value.items(), budget, depth)}


def _pairs(pairs: Any, budget: Budget, depth: int) -> list[object]:
    return [[plain(k, budget, depth + 1), plain(v, budget, depth + 1)] for k, v in pairs]


def _reference(value: Reference, budget: Budget, depth: int) -> object:
    written: dict[str, object] = {"$weak" if value.kind == "w" else "$ref": value.oid}
    if value.class_name is not None:
        written["class"] = value.class_name
    if value.database is not None:
        written["db"] = value.database
    return written


def _instance(value: Stub, budget: Budget, depth: int) -> object:
    written: dict[str, object] = {"$class": value.stands_for}
    if value.args:
        written["args"] = plain(value.args, budget, depth + 1)
    if value.state is not None:
        written["state"] = plain(value.state, budget, depth + 1)
    if value.items:
        written["items"] = plain(value.items, budget, depth + 1)
    if value.pairs:
        written["pairs"] = _pairs(value.pairs, budget, depth)
    return written


def _zoned(value: ZonedDatetime, budget: Budget, depth: int) -> object:
    zone = value.zone
    named = isinstance(zone, Stub) and bool(zone.args) and isinstance(zone.args[0], str)
    name = zone.args[0] if named and isinstance(zone, Stub) else zone.stands_for
    return {
        _MOMENTS[type(value.naive)]: value.naive.isoformat(),
        "zone": plain(name, budget, depth + 1),
    }


def _moment(value: datetime.date | datetime.time, budget: Budget, depth: int) -> object:
    return {_MOMENTS[type(value)]: value.isoformat()}


_MOMENTS = {
    datetime.datetime: "$datetime",
    datetime.date: "$date",
    datetime.time: "$time",
}


def _decimal(value: decimal.Decimal, budget: Budget, depth: int) -> object:
    budget.characters(digits := str(value))
    return {"$decimal": digits}


_WRITERS: dict[type, Callable[[Any, Budget, int], object]] = {
    type(None): lambda value, budget, depth: value,
    bool: lambda value, budget, depth: value,
    int: _int,
    float: _float,
    str: _text,
    bytes: _bytes,
    bytearray: _bytes,
    list: _list,
    tuple: _list,
    set: _set,
    frozenset: _set,
    dict: _mapping,
    Reference: _reference,
    Constructor: lambda value, budget, depth: {"$class": value.stands_for},
    ZonedDatetime: _zoned,
    datetime.datetime: _moment,
    datetime.date: _moment,
    datetime.time: _moment,
    datetime.timedelta: lambda value, budget, depth: {"$timedelta": value.total_seconds()},
    datetime.timezone: lambda value, budget, depth: {"$timezone": str(value)},
    decimal.Decimal: _decimal,
    complex: lambda value, budget, depth: {"$complex": str(value)},
}
