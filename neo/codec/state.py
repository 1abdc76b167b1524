"""The state of a record as JSON, with a bound on everything.

A pickle of a few bytes can hold a structure that is endless when it is written out (shared parts,
cycles). So a :class:`Budget` counts nodes, depth and text while the state is walked. What JSON does not
know is an object with one key that begins with ``$``:

``$ref`` ``$weak`` oid of a reference (with ``db`` or ``class`` where known) · ``$class`` an instance
(``state``, ``args``, ``items``, ``pairs`` where it has them) or, alone, a class; ``persistent:`` and an
oid if it is a persistent object · ``$bytes`` base64 · ``$int`` text of an integer beyond 64 bits:
decimal, or hexadecimal (``0x…``) beyond 8,192 bits · ``$float`` nan, inf, -inf · ``$str`` text with lone
surrogates, escaped · ``$map`` pairs of a mapping whose keys are not all plain text · ``$set`` ·
``$datetime`` ``$date`` ``$time`` ISO 8601 (``zone``: a name if that is all, else an instance; ``fold``: 1
for the second of two times that are written alike) · ``$timedelta`` seconds · ``$timezone`` ·
``$decimal`` · ``$complex``.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable, Collection
from typing import Any

from neo.codec.buckets import flatten
from neo.codec.record import Record, Reference, decode_value
from neo.codec.stubs import Constructor, Stub, ZonedDatetime

#: Values in one state. A bucket of a BTree has a few hundred; a large catalogue entry some thousands.
NODES_MAX = 100_000
#: Greatest depth. Python's recursion limit is ten times as high.
DEPTH_MAX = 100
#: Characters of text in one state, after base64: a size that a column of Spark can hold.
TEXT_MAX = 16 << 20
#: Integers that JSON readers accept: signed 64 bits.
_INT_MAX = (1 << 63) - 1
#: Greater integers are written in hexadecimal: decimal takes time with the square of the length.
_DECIMAL_BITS_MAX = 8_192


class BudgetExceeded(ValueError):
    """The state is larger than its reader allows."""


class Budget:
    """Counts the cost of one state."""

    __slots__ = ("nodes", "text")

    def __init__(self, nodes: int = NODES_MAX, text: int = TEXT_MAX) -> None:
        self.nodes = nodes
        self.text = text

    def values(self, count: int, depth: int) -> None:
        """Count values at a depth."""
        self.nodes -= count
        if self.nodes < 0:
            raise BudgetExceeded("the state has more values than the budget allows")
        if depth > DEPTH_MAX and count:
            raise BudgetExceeded(f"the state nests deeper than {DEPTH_MAX} levels, or in a circle")

    def characters(self, count: int) -> None:
        self.text -= count
        if self.text < 0:
            raise BudgetExceeded("the state has more text than the budget allows")


def state_json(record: Record, budget: Budget | None = None) -> str | None:
    """Return the state of a record as JSON text (ASCII), or None if it has none.

    Raise :class:`BudgetExceeded` if it is larger than the budget.
    """
    if record.error is not None:
        return None
    return _dumps(flatten(record.class_name or "", record.state), budget or Budget())


def value_json(data: bytes) -> str:
    """Return one pickle as JSON, such as the extension of a transaction.

    If it cannot be read, return an object ``{"$error": reason}``.
    """
    value, error = decode_value(data)
    if error is None:
        try:
            return _dumps(value, Budget())
        except BudgetExceeded as e:
            error = str(e)
    return json.dumps({"$error": error})


def _dumps(value: object, budget: Budget) -> str:
    budget.values(1, 0)
    return _write(value, budget, 0)


#: A text in quotes, as json.dumps() writes it.
_quoted = json.encoder.encode_basestring_ascii


def _write(value: object, budget: Budget, depth: int) -> str:
    """Return the JSON of ``value``, which its container has already counted."""
    write = _WRITERS.get(type(value))
    if write is not None:
        return write(value, budget, depth)
    if isinstance(value, Stub):
        return _instance(value, budget, depth)
    if isinstance(value, type) and issubclass(value, Stub):
        return _class(value, budget, depth)
    raise BudgetExceeded(f"a value of type {type(value).__name__}, which no pickle makes")


def _tagged(name: str, text: str) -> str:
    return f'{{"{name}":{_quoted(text)}}}'


def _text(value: str, budget: Budget, depth: int) -> str:
    budget.characters(len(value))
    if value.isascii() or _is_unicode(value):
        return _quoted(value)
    return _tagged("$str", value.encode("unicode_escape").decode("ascii"))


def _is_unicode(value: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(value: bytes | bytearray, budget: Budget, depth: int) -> str:
    budget.characters(len(value))
    return _tagged("$bytes", base64.b64encode(value).decode("ascii"))


def _int(value: int, budget: Budget, depth: int) -> str:
    if -_INT_MAX <= value <= _INT_MAX:
        return repr(value)
    digits = str(value) if value.bit_length() <= _DECIMAL_BITS_MAX else hex(value)
    budget.characters(len(digits))
    return _tagged("$int", digits)


def _float(value: float, budget: Budget, depth: int) -> str:
    return repr(value) if math.isfinite(value) else _tagged("$float", str(value))


def _list(value: list[object] | tuple[object, ...], budget: Budget, depth: int) -> str:
    return f"[{','.join(_all(value, budget, depth + 1))}]"


def _all(values: Collection[object], budget: Budget, depth: int) -> list[str]:
    budget.values(len(values), depth)
    return [_WRITERS.get(type(value), _write)(value, budget, depth) for value in values]


def _set(value: set[object] | frozenset[object], budget: Budget, depth: int) -> str:
    return f'{{"$set":[{",".join(sorted(_all(value, budget, depth + 1)))}]}}'


def _mapping(value: dict[object, object], budget: Budget, depth: int) -> str:
    names = []
    for key in value:
        if type(key) is not str or key[:1] == "$" or not (key.isascii() or _is_unicode(key)):
            return f'{{"$map":{_pairs(value.items(), budget, depth)}}}'
        names.append(_quoted(key))
    written = _all(value.values(), budget, depth + 1)
    budget.characters(sum(map(len, names)))
    return f"{{{','.join([f'{name}:{item}' for name, item in zip(names, written, strict=True)])}}}"


def _pairs(pairs: Collection[tuple[object, object]], budget: Budget, depth: int) -> str:
    return f"[{','.join(_list(pair, budget, depth) for pair in pairs)}]"


def _reference(value: Reference, budget: Budget, depth: int) -> str:
    kind, oid, class_name, database = value
    written = f'{{"{"$weak" if kind == "w" else "$ref"}":{oid}'
    if class_name is not None:
        budget.characters(len(class_name))
        written += f',"class":{_quoted(class_name)}'
    if database is not None:
        budget.characters(len(database))
        written += f',"db":{_quoted(database)}'
    return written + "}"


def _class(value: type[Stub] | Constructor, budget: Budget, depth: int) -> str:
    if isinstance(value, type) and value.reference is not None:
        return _reference(value.reference, budget, depth)
    budget.characters(len(value.stands_for))
    return _tagged("$class", value.stands_for)


def _instance(value: Stub, budget: Budget, depth: int) -> str:
    budget.characters(len(value.stands_for))
    written = f'{{"$class":{_quoted(value.stands_for)}'
    if value.args:
        budget.values(1, depth + 1)
        written += f',"args":{_list(value.args, budget, depth + 1)}'
    if value.state is not None:
        budget.values(1, depth + 1)
        written += f',"state":{_write(value.state, budget, depth + 1)}'
    if value.items:
        budget.values(1, depth + 1)
        written += f',"items":{_list(value.items, budget, depth + 1)}'
    if value.pairs:
        written += f',"pairs":{_pairs(value.pairs, budget, depth)}'
    return written + "}"


def _zoned(value: ZonedDatetime, budget: Budget, depth: int) -> str:
    name = _zone_name(value.zone)
    budget.values(1, depth + 1)
    zone = _write(value.zone if name is None else name, budget, depth + 1)
    return f'{_moment(value.naive, budget, depth)[:-1]},"zone":{zone}}}'


def _zone_name(zone: Stub | type[Stub]) -> str | None:
    """Return the name that fully describes a zone, or None."""
    if isinstance(zone, type) or (not zone.args and zone.state is None):
        return zone.stands_for
    # pytz has a known offset in further arguments; zoneinfo a flag of its cache.
    if zone.stands_for == "zoneinfo.ZoneInfo._unpickle" or (
        zone.stands_for == "pytz._p" and len(zone.args) == 1
    ):
        name = zone.args[0]
        return name if isinstance(name, str) else None
    return None


def _moment(value: datetime.date | datetime.time, budget: Budget, depth: int) -> str:
    fold = ',"fold":1' if getattr(value, "fold", 0) else ""
    return f'{{"{_MOMENTS[type(value)]}":"{value.isoformat()}"{fold}}}'


_MOMENTS = {
    datetime.datetime: "$datetime",
    datetime.date: "$date",
    datetime.time: "$time",
}


def _timezone(value: datetime.timezone, budget: Budget, depth: int) -> str:
    return f'{{"$timezone":{_text(str(value), budget, depth)}}}'


def _decimal(value: decimal.Decimal, budget: Budget, depth: int) -> str:
    budget.characters(len(digits := str(value)))
    return _tagged("$decimal", digits)


_WRITERS: dict[type, Callable[[Any, Budget, int], str]] = {
    type(None): lambda value, budget, depth: "null",
    bool: lambda value, budget, depth: "true" if value else "false",
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
    Constructor: _class,
    ZonedDatetime: _zoned,
    datetime.datetime: _moment,
    datetime.date: _moment,
    datetime.time: _moment,
    datetime.timedelta: lambda value, budget, depth: f'{{"$timedelta":{value.total_seconds()!r}}}',
    datetime.timezone: _timezone,
    decimal.Decimal: _decimal,
    complex: lambda value, budget, depth: _tagged("$complex", str(value)),
}
