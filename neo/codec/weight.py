"""Estimate the memory of a record from its opcodes before it is read.

Most opcodes take at most 32 bytes per byte of the record: a place in the stack, in a list or the memo,
text, a number. The opcodes of this file take up to 250. Only large records are weighed; only those with
many such opcodes are walked. A record of text takes one pass in C.
"""

from __future__ import annotations

from neo.codec.opcodes import MalformedPickle, walk

#: Smaller records take at most 64 MiB, whatever their opcodes are.
UNWEIGHED_SIZE = 1 << 18
#: Bytes that containers and instances may take: a multiple of the record's size, and a constant. A
#: record of small dictionaries or small objects takes 15 to 20 times its size.
WEIGHT_FACTOR = 24
WEIGHT_BASE = 32 << 20

#: Bytes of an empty container or an instance; for ``aesu`` and ADDITEMS of the first items' allocation.
_COSTS: dict[str, int] = {
    **dict.fromkeys("]l", 56),
    **dict.fromkeys("ae", 32),
    "}": 64,
    "d": 232,
    **dict.fromkeys("su", 168),
    "\x8f": 216,
    "\x90": 512,
    "\x91": 728,
    **dict.fromkeys("t\x85\x86\x87", 64),
    **dict.fromkeys("PQ", 136),
    **dict.fromkeys("Rio\x81\x92", 200),
}
_COST = [_COSTS.get(chr(code), 0) for code in range(256)]

#: Each container, instance or reference has at least one of these bytes: sets the first two,
#: objects that are made of the items above a mark the mark.
_SETS = b"\x8f\x91"
_SET_MAX = 728
_OTHERS = b"(]}\x85\x86\x87PQR\x81\x92"
_OTHER_MAX = 240
_ALL_BUT_SETS = bytes(set(range(256)) - set(_SETS))
_ALL_BUT_OTHERS = bytes(set(range(256)) - set(_OTHERS))


def refuse_heavy(data: bytes) -> None:
    """Raise :class:`MalformedPickle` if the objects of a record would take far more than genuine ones."""
    if len(data) <= UNWEIGHED_SIZE:
        return
    allowed = WEIGHT_FACTOR * len(data) + WEIGHT_BASE
    sets = len(data.translate(None, _ALL_BUT_SETS))
    others = len(data.translate(None, _ALL_BUT_OTHERS))
    if sets * _SET_MAX + others * _OTHER_MAX <= allowed:
        return
    weight = 0
    for code, _, _ in walk(data):
        weight += _COST[code]
        if weight > allowed:
            raise MalformedPickle(
                f"the objects of this record of {len(data)} bytes would take more than {allowed} bytes"
            )
