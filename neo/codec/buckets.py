"""Flatten the states of BTrees, which are nested tuples.

Forms, as the package BTrees documents them in its ``__getstate__``: a bucket ``((k, v, k, v, …),)`` or
``((…), next)``; a set ``((k, k, …),)`` or ``((…), next)``; a tree ``((child, key, child, …), first
bucket)``, or ``((bucket's state,),)`` if its only bucket is not an object of its own. A state of another
form is left unchanged.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"BTrees\.\w+\.\w*?(BTree|TreeSet|Bucket|Set)(Py)?")


def flatten(class_name: str, state: object) -> object:
    """Return the state of a record, flattened if ``class_name`` belongs to BTrees.

    A bucket gives ``items`` (pairs) and ``next``; a set ``keys`` and ``next``; a tree ``children``,
    ``separators`` and ``first``; a tree of one bucket the same as the bucket.
    """
    match = _NAME.fullmatch(class_name)
    if match is None or not isinstance(state, tuple):
        return state
    kind = match[1]
    if kind in ("Bucket", "Set"):
        return _bucket(state, mapping=kind == "Bucket")
    match state:
        case ((inner,),) if isinstance(inner, tuple):
            return _bucket(inner, mapping=kind == "BTree")
        case ((*nodes,), first) if len(nodes) % 2 == 1:
            return {"children": nodes[::2], "separators": nodes[1::2], "first": first}
    return state


def _bucket(state: tuple[object, ...], mapping: bool) -> object:
    match state:
        case (tuple() as content, *rest) if len(rest) <= 1:
            if not mapping:
                return {"keys": list(content), **_next(rest)}
            if len(content) % 2 == 0:
                pairs = zip(content[::2], content[1::2], strict=True)
                return {"items": [list(pair) for pair in pairs], **_next(rest)}
    return state


def _next(rest: list[object]) -> dict[str, object]:
    return {"next": rest[0]} if rest else {}
