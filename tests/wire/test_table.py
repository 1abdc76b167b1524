"""The table of messages compared with the recorded one: codes, names, arguments, types."""

from __future__ import annotations

import re
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

from neo.net.connection import HANDSHAKE
from neo.protocol.enums import EXTENSION_TYPES
from neo.protocol.packets import ANSWERS, BY_CODE, CODES, EXTENSION, RESPONSE, Address, Error
from tests.wire import golden

ENTRIES = golden.GOLDEN["messages"]
SCALARS = {bool: "bool", bytes: "bin", str: "bin", Any: "any"}
SIZES = {8: "p64", 20: "bin20"}


def notation(hint: Any) -> str:
    """A field's annotation in the notation of the record, without the names inside rows."""
    origin, args = get_origin(hint), get_args(hint)
    if hint == Address:
        return "addr"
    if origin is Annotated:
        return SIZES[args[1].min_length] if args[0] is bytes else args[0].__name__
    if origin in (Union, UnionType):
        (inner,) = (arg for arg in args if arg is not NoneType)
        return f"?{notation(inner)}"
    if origin is list:
        return f"[{notation(args[0])}]"
    if origin is tuple:
        return f"({', '.join(notation(arg) for arg in args)})"
    if origin is dict:
        return f"{{{notation(args[0])}:{notation(args[1])}}}"
    if hint is NoneType:
        return "nil"
    return f"{hint.__name__}s" if hint in EXTENSION_TYPES else SCALARS[hint]


def without_names(recorded: str) -> str:
    """``(nid:int, state:CellStates)`` as ``(int, CellStates)``; the keys of maps stay."""
    return re.sub(r"(?<=[( ])\w+:", "", recorded)


def fields(cls: type) -> list[list[str]]:
    hints = get_type_hints(cls, include_extras=True)
    return [[name, notation(hint)] for name, hint in hints.items()]


def test_the_comparison_sees_names_and_types() -> None:
    assert without_names("[[(nid:int, state:CellStates)]]") == "[[(int, CellStates)]]"
    assert without_names("{p64:(a:p64, b:?p64)}") == "{p64:(p64, ?p64)}"
    assert without_names("?(data:?(c:int, d:bin))") == "?(?(int, bin))"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_message(entry: dict[str, Any]) -> None:
    """Specification 1.5, 21.1."""
    code = entry["code"] or RESPONSE  # Error is a response to everything
    cls = BY_CODE[code]
    assert cls.__name__ == entry["name"]
    assert fields(cls) == [[name, without_names(kind)] for name, kind in entry["args"]]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_answer(entry: dict[str, Any]) -> None:
    """Specification 2.13."""
    cls = BY_CODE[entry["code"] or RESPONSE]
    if entry["answer"] is None:
        assert cls not in ANSWERS
        return
    answer = ANSWERS[cls]
    assert answer.__name__ == entry["answer"]
    if answer is not Error:
        assert CODES[answer] == entry["code"] | RESPONSE
        assert fields(answer) == [
            [name, without_names(kind)] for name, kind in entry["answer_args"]
        ]


def test_no_message_more_than_the_specification() -> None:
    """Specification 21.1."""
    ours = {code & ~RESPONSE for code in BY_CODE if not code & EXTENSION}
    assert ours == {entry["code"] for entry in ENTRIES}


def test_enumerations() -> None:
    """Specification 2.8."""
    recorded = golden.GOLDEN["enums"]
    assert [f"{cls.__name__}s" for cls in EXTENSION_TYPES] == list(recorded)
    for cls in EXTENSION_TYPES:
        assert [item.name for item in cls] == recorded[f"{cls.__name__}s"]
        assert [item.value for item in cls] == list(range(len(cls)))


def test_handshake() -> None:
    """Specification 2.2."""
    assert HANDSHAKE == golden.HANDSHAKE
