"""Values as ZODB wrote them, out of what clients compressed: nearly half of what reading them costs.

libdeflate takes three fifths of the time of zlib for records of some hundred bytes, but wants to know how
large they may become. It comes with the extras that read everything; without, zlib makes the same.
"""

from __future__ import annotations

import zlib

try:
    import deflate
except ImportError:
    # None for a module that is not installed is what mypy calls an incompatible type.
    deflate = None  # type: ignore[assignment]

#: What zlib can make of a byte, at most.
ZLIB_RATIO = 1032
#: What it makes of a byte of a record, seldom more. Of such a buffer only what is used costs anything.
USUAL_RATIO = 16
#: What is decompressed beyond the limit, only to be counted, is in memory a piece at a time.
PIECE_BYTES = 1 << 20


def inflate(data: bytes, limit: int) -> tuple[int, bytes | None]:
    """(size, value), without the value if it is larger than the limit. Any thread.

    Raises zlib.error for what is damaged; of what is too large, the end is not looked at.
    """
    room = min(limit, USUAL_RATIO * len(data))
    if deflate is not None and room:  # without room it says that there is nothing
        try:
            found = deflate.zlib_decompress(data, room)
            return len(found), bytes(found)
        except deflate.DeflateError:
            pass  # it is larger than that, or damaged: the other one tells
    if len(data) * ZLIB_RATIO <= limit:
        value = zlib.decompress(data)
        return len(value), value
    return _bounded(data, limit)


def _bounded(data: bytes, limit: int) -> tuple[int, bytes | None]:
    stream = zlib.decompressobj()
    value = stream.decompress(data, limit + 1)
    size = len(value)
    if size <= limit:
        if not stream.eof:
            raise zlib.error("it ends too early")
        return size, value
    while not stream.eof and (piece := stream.decompress(stream.unconsumed_tail, PIECE_BYTES)):
        size += len(piece)
    return size, None
