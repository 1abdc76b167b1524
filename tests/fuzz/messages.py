"""Hypothesis strategies that are derived from the table of messages."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from neo.protocol.enums import EXTENSION_TYPES, CellState
from neo.protocol.packets import CODES, Message

INTEGERS = st.integers(-(2**31), 2**32 - 1)
#: Texts without surrogates, which UTF-8 cannot encode.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_FREE = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | TEXTS
    | st.sampled_from(CellState),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(TEXTS | st.sampled_from(CellState), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a field's type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if args[0] is int:
            return st.integers(args[1].ge, 2**64 - 1 if args[1].le is None else args[1].le)
        if args[0] is float:
            return st.floats(args[1].ge, args[1].le)
        return st.binary(min_size=args[1].min_length, max_size=args[1].max_length)
    if origin in (Union, UnionType):
        (inner,) = (arg for arg in args if arg is not NoneType)
        return st.none() | values(inner)
    if origin is list:
        return st.lists(values(args[0]), max_size=4)
    if origin is tuple:
        return st.tuples(*(values(arg) for arg in args))
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=4)
    if hint in EXTENSION_TYPES:
        return st.sampled_from(hint)
    return {
        NoneType: st.none(),
        bool: st.booleans(),
        bytes: st.binary(max_size=300),
        str: TEXTS,
        Any: _FREE,
    }[hint]


def instances(cls: type[Message]) -> st.SearchStrategy[Message]:
    """Return a strategy for messages of one class."""
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, *(values(hint) for hint in hints.values()))


MESSAGES: st.SearchStrategy[Message] = st.sampled_from(list(CODES)).flatmap(instances)
