"""Frames in a file: tell a write that a crash cut off from damage.

A frame is its length, a checksum of the length, a checksum of the content, the content, and a byte that
is not zero. A crash that interrupts an append leaves a file that ends within a frame, or in blocks of
zeros that were never written; the last byte of the frame then is zero or missing. Any other wrong
checksum is damage: bits have flipped, and this frame or later ones may hold promises.

The highest bit of the length says that the frame has the last byte. Frames of the old format do not
have it. In them trailing zeros of the content cannot be told from unwritten blocks, so a wrong checksum
is damage.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

HEAD = struct.Struct(">III")
#: The last byte of a frame, and the bit of the length that announces it. Lengths need 27 bits.
END = b"\xa5"
ENDED = 1 << 31

#: Disks write aligned blocks of at least this size atomically.
BLOCK = 512


class Damage(Exception):
    """The file has other content than was written; the message says where."""


class Scanned(NamedTuple):
    frames: list[bytes]
    #: Offset of the next frame; what follows was cut off by a crash.
    end: int


def frame(content: bytes) -> bytes:
    length = ENDED | len(content) + len(END)
    content += END
    return HEAD.pack(length, zlib.crc32(struct.pack(">I", length)), zlib.crc32(content)) + content


def scan(data: bytes) -> Scanned:
    """Return all frames of a file. Raises Damage."""
    frames: list[bytes] = []
    at = 0
    while at < len(data):
        if len(data) - at < HEAD.size:
            break
        length, check, content_check = HEAD.unpack_from(data, at)
        ended = bool(length & ENDED)
        begin = at + HEAD.size
        end = begin + (length & ~ENDED)
        if zlib.crc32(data[at : at + 4]) != check:
            if _torn(data, at, begin):
                break
            raise Damage(f"at byte {at}")
        if end > len(data):
            break
        content = data[begin:end]
        if zlib.crc32(content) != content_check:
            if ended and _torn(data, at, end):
                break
            raise Damage(f"at byte {at}")
        frames.append(content[: -len(END)] if ended else content)
        at = end
    return Scanned(frames, at)


def _torn(data: bytes, at: int, end: int) -> bool:
    """Return whether ``data`` was cut off before ``end``: the file ended at ``at``, or a block before
    ``end`` was never written. Unwritten blocks are zeros."""
    written = len(data.rstrip(b"\0"))
    return written <= at or -(-written // BLOCK) * BLOCK < end
