"""How much memory a record would take, told from its opcodes before it is read.

Most opcodes take 32 bytes for each of their own at most: a place in the stack, one in a list or the memo,
text, a number. Those of this file take more, up to 250 for one byte. Only a large record is weighed,
and opcode by opcode only one with many of them: a record of text costs one pass in C.
"""

from __future__ import annotations

from neo.codec.opcodes import MalformedPickle, walk

#: Smaller records take 64 MiB at most, whatever their opcodes are.
UNWEIGHED_SIZE = 1 << 18
#: What containers and instances may take, in bytes: so many times the size of the record, and so many.
#: One with nothing but small dictionaries or small objects takes 15 to 20 times its size.
WEIGHT_FACTOR = 24
WEIGHT_BASE = 32 << 20

#: Bytes of an empty container, or of an instance; for ``aesu`` and ADDITEMS of its first room for items.
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

#: Each container, instance or reference has one of these bytes of its own: sets the first two, and
#: what is made of the items above a mark the mark.
_SETS = b"\x8f\x91"
_SET_MAX = 728
_OTHERS = b"(]}\x85\x86\x87PQR\x81\x92"
_OTHER_MAX = 240
_ALL_BUT_SETS = bytes(set(range(256)) - set(_SETS))
_ALL_BUT_OTHERS = bytes(set(range(256)) - set(_OTHERS))


def refuse_heavy(data: bytes) -> None:
    """Raise :class:`MalformedPickle` if the objects of a record would take much more than true ones."""
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
