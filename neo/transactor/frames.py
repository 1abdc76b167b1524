"""Frames in a file: how a write that a crash cut off is told from damage.

A frame is its length, a check of the length, a check of the content, and the content. A file that was
extended by a crash ends in the middle of a frame, or in zeros. Anything else that does not check is
damage: bits have flipped, and what follows may have been promised.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

HEAD = struct.Struct(">III")
#: No frame is longer: a specification of the largest size, and some.
FRAME_MAX = 80 * 1024 * 1024

#: Disks write blocks of at least so many bytes as a whole.
BLOCK = 512


class Damage(Exception):
    """The frame at ``offset`` is not what was written."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"at byte {offset}")
        self.offset = offset


class Scanned(NamedTuple):
    frames: list[bytes]
    #: Where the next frame belongs; what is behind it was cut off by a crash.
    end: int


def frame(content: bytes) -> bytes:
    length = struct.pack(">I", len(content))
    return HEAD.pack(len(content), zlib.crc32(length), zlib.crc32(content)) + content


def scan(data: bytes) -> Scanned:
    """All frames of a file. Raises Damage."""
    frames: list[bytes] = []
    at = 0
    while at < len(data):
        if len(data) - at < HEAD.size:
            break
        length, check, content_check = HEAD.unpack_from(data, at)
        begin, end = at + HEAD.size, at + HEAD.size + length
        if zlib.crc32(data[at : at + 4]) != check:
            if _torn(data, at, len(data)):
                break
            raise Damage(at)
        if end > len(data):
            break
        content = data[begin:end]
        if zlib.crc32(content) != content_check:
            if _torn(data, at, end):
                break
            raise Damage(at)
        frames.append(content)
        at = end
    return Scanned(frames, at)


def _torn(data: bytes, at: int, end: int) -> bool:
    """From some block on, within this frame, the file is zeros: those blocks were never written."""
    written = -(-len(data.rstrip(b"\0")) // BLOCK) * BLOCK
    return max(written, at) < end
