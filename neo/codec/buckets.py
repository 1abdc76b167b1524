"""The states of BTrees, which nest tuples in tuples, written as what they mean.

Forms, as the package BTrees documents them in its ``__getstate__``: a bucket ``((k, v, k, v, …),)`` or
``((…), next)``; a set ``((k, k, …),)`` or ``((…), next)``; a tree ``((child, key, child, …), first
bucket)``, or ``((bucket's state,),)`` when it has only one bucket, which is no object of its own then.
A state of another form stays as it is.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"BTrees\.\w+\.\w*?(BTree|TreeSet|Bucket|Set)(Py)?")


def flatten(class_name: str, state: object) -> object:
    """Return the state of a record of class ``class_name``, flattened when it is one of BTrees.

    A bucket gives ``items`` (pairs) and ``next``; a set ``keys`` and ``next``; a tree ``children``,
    ``separators`` and ``first``; a tree of one bucket gives what the bucket would.
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
