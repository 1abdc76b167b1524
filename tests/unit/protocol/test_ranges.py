"""Every number of every message has a range, which is checked where the message is received."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from msgspec import Meta

from neo.protocol.codec import encode
from neo.protocol.enums import EXTENSION_TYPES
from neo.protocol.packets import CODES, NotifyMonitorInformation
from tests.unit.protocol.packed import decode, packed, refusal

ENDLESS = [math.inf, -math.inf, math.nan]


def least(length: Meta) -> bytes:
    assert length.min_length is not None
    return bytes(length.min_length)


def one(hint: Any) -> Any:
    """A value of an annotation, as it travels."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return least(args[1]) if args[0] is bytes else args[1].ge
    if origin in (Union, UnionType):
        return one(next(arg for arg in args if arg is not NoneType))
    if origin is list:
        return [one(args[0])]
    if origin is tuple:
        return [one(arg) for arg in args]
    if origin is dict:
        return {one(args[0]): one(args[1])}
    if hint in EXTENSION_TYPES:
        item: Enum = next(iter(hint))
        return msgpack.ExtType(EXTENSION_TYPES.index(hint), bytes([item.value]))
    return {bool: True, bytes: b"", str: b"", NoneType: None, Any: 1}[hint]


def spoiled(hint: Any) -> Iterator[Any]:
    """The same with one number out of its range, by all that contain a number."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated and args[0] is int:
        below, above = args[1].ge - 1, 2**64 if args[1].le is None else args[1].le + 1
        yield from (number for number in (below, above) if -(2**63) <= number < 2**64)
    elif origin is Annotated and args[0] is float:
        yield from ENDLESS
    elif origin in (Union, UnionType):
        yield from spoiled(next(arg for arg in args if arg is not NoneType))
    elif origin is list:
        yield from ([value] for value in spoiled(args[0]))
        yield from ([one(args[0]), value, one(args[0])] for value in spoiled(args[0]))
    elif origin is tuple:
        for i, arg in enumerate(args):
            for value in spoiled(arg):
                yield [value if j == i else one(other) for j, other in enumerate(args)]
    elif origin is dict:
        yield from ({value: one(args[1])} for value in spoiled(args[0]))
        yield from ({one(args[0]): value} for value in spoiled(args[1]))


def numbers(hint: Any) -> Iterator[Any]:
    """The ranges of the numbers in an annotation, or their type where they have none."""
    if hint in (int, float):
        yield hint
    elif get_origin(hint) is Annotated:
        yield get_args(hint)[1]
    else:
        for arg in get_args(hint):
            yield from numbers(arg)


FIELDS = [
    pytest.param(cls, name, hint, id=f"{cls.__name__}.{name}")
    for cls in CODES
    for name, hint in get_type_hints(cls, include_extras=True).items()
]


@pytest.mark.parametrize(("cls", "name", "hint"), FIELDS)
def test_numbers_have_a_range(cls: type, name: str, hint: Any) -> None:
    """Specification 2.10."""
    assert not {int, float} & set(numbers(hint)), "a number without its range"
    hints = get_type_hints(cls, include_extras=True)
    right = [one(other) for other in hints.values()]
    assert len(decode(packed(0, CODES[cls], right))) == 1
    for value in spoiled(hint):
        arguments = [value if other == name else one(hints[other]) for other in hints]
        text = refusal(packed(0, CODES[cls], arguments))
        assert text.startswith(f"{cls.__name__}: wrong argument: ")
        assert f"{name}" in text
        assert re.search("expected (int|float) [<>]= ", text)


def test_some_field_is_spoiled() -> None:
    """What the test above looks for exists."""
    assert sum(1 for field in FIELDS for _ in spoiled(field.values[2])) > 150


@pytest.mark.parametrize("number", ENDLESS)
def test_numbers_of_free_form_are_finite(number: float) -> None:
    """Specification 2.5."""
    assert "no finite number" in refusal(encode(1, NotifyMonitorInformation({"lag": [number]})))
