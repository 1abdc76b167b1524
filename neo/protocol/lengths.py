"""Lengths that the beginning of a message announces, refused before anything of that size comes.

MessagePack is a flat sequence of headers and bodies, so that no nesting needs to be followed. The
decoder itself looks at the length of a *bin* only when its last byte is there.
"""

from __future__ import annotations

from neo.protocol.errors import PeerError

#: First byte -> (width of the length that follows, bytes between it and the body).
_BODIES = {
    **{0xC4 + i: (1 << i, 0) for i in range(3)},  # bin 8, 16, 32
    **{0xC7 + i: (1 << i, 1) for i in range(3)},  # ext 8, 16, 32
    **{0xD9 + i: (1 << i, 0) for i in range(3)},  # str 8, 16, 32
}
#: First byte -> bytes that follow it: numbers, fixext, lengths of arrays and maps.
_FIXED = {
    **{0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8},
    **{0xD4 + i: 1 + (1 << i) for i in range(5)},
    **{0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4},
    **{0xA0 + i: i for i in range(32)},  # fixstr
}


def check_lengths(head: bytes | bytearray, limit: int) -> None:
    """Raise PeerError if a length in ``head``, the beginning of a message, is above ``limit``."""
    position = 0
    while position < len(head):
        first = head[position]
        body = _BODIES.get(first)
        if body is None:
            position += 1 + _FIXED.get(first, 0)
            continue
        width, gap = body
        start = position + 1 + width
        if start > len(head):
            return
        length = int.from_bytes(head[position + 1 : start], "big")
        if length > limit:
            raise PeerError(f"message of more than {limit} bytes: {length} bytes are announced")
        position = start + gap + length
