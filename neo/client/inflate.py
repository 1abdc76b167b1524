"""Decompression of records for readers of the whole database, where it is nearly half of the cost.

libdeflate takes three fifths of zlib's time for records of some hundred bytes, but needs the maximal
size of the result. The extras for pipelines install it; without it, zlib gives the same results.
"""

from __future__ import annotations

import zlib

try:
    import deflate
except ImportError:
    # None for a module that is not installed is what mypy calls an incompatible type.
    deflate = None  # type: ignore[assignment]

#: Bytes that zlib can make of one byte, at most.
ZLIB_RATIO = 1032
#: The same for nearly all records. Unused pages of a buffer of this size cost nothing.
USUAL_RATIO = 16
#: Data beyond the limit is decompressed in pieces of this size, only to count its bytes.
PIECE_BYTES = 1 << 20


def inflate(data: bytes, limit: int) -> tuple[int, bytes | None]:
    """Return (size, value); the value is None if it is larger than the limit. Thread-safe.

    Raise zlib.error for damaged data, but do not verify the end of data that is too large.
    """
    room = min(limit, USUAL_RATIO * len(data))
    if deflate is not None and room:  # libdeflate returns nothing if there is no room
        try:
            found = deflate.zlib_decompress(data, room)
            return len(found), bytes(found)
        except deflate.DeflateError:
            pass  # the value is larger, or damaged: zlib tells which
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
            raise zlib.error("the compressed data is truncated")
        return size, value
    while not stream.eof and (piece := stream.decompress(stream.unconsumed_tail, PIECE_BYTES)):
        size += len(piece)
    return size, None
