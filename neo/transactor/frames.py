"""Frames in a file: how a write that a crash cut off is told from damage.

A frame is its length, a check of the length, a check of the content, the content, and a byte that is not
zero. A file that was extended by a crash ends in the middle of a frame, or in blocks of zeros that were
never written; then the last byte of the frame is one of them. Anything else that does not check is
damage: bits have flipped, and what is there, or follows, may have been promised.

The highest bit of the length says that the last byte is there. Without it the end of a content of zeros
looks like blocks that were not written; so a frame of that old form that does not check is damage.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

HEAD = struct.Struct(">III")
#: The last byte of a frame, and the bit of the length that promises it. Lengths need 27 bits.
END = b"\xa5"
ENDED = 1 << 31

#: Disks write blocks of at least so many bytes as a whole.
BLOCK = 512


class Damage(Exception):
    """What a file has is not what was written; the message says where."""


class Scanned(NamedTuple):
    frames: list[bytes]
    #: Where the next frame belongs; what is behind it was cut off by a crash.
    end: int


def frame(content: bytes) -> bytes:
    length = ENDED | len(content) + len(END)
    content += END
    return HEAD.pack(length, zlib.crc32(struct.pack(">I", length)), zlib.crc32(content)) + content


def scan(data: bytes) -> Scanned:
    """All frames of a file. Raises Damage."""
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
    """What was never written is zeros: from ``at`` on, where the file ended before, or from some block
    on, before ``end``."""
    written = len(data.rstrip(b"\0"))
    return written <= at or -(-written // BLOCK) * BLOCK < end
