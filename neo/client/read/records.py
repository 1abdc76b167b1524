"""Object data on the wire: compressed or not, with its SHA-1 checksum."""

from __future__ import annotations

import zlib
from hashlib import sha1

import deflate

from neo.client.errors import CorruptedError, NEOStorageError
from neo.protocol.blobs import (
    MAGIC,
    PLACE,
    REFERENCE_BYTES,
    Content,
    with_content,
    without_content,
)
from neo.protocol.codec import LIMIT_PEER
from neo.protocol.packets import AnswerObject, NotifyConflictData

#: zlib does not make smaller data any shorter.
SMALLEST_COMPRESSED_BYTES = 40
#: An object must fit in one message, with room for the rest of the message.
LARGEST_BYTES = LIMIT_PEER - 4096
#: A node of another implementation does not survive a message of 64 MiB (specification 2.39).
FOREIGN_LARGEST_BYTES = (64 << 20) - 4096
#: Bytes that zlib can make of one byte, at most.
ZLIB_RATIO = 1032
#: Bytes that zlib makes of one byte in nearly all records. Unused pages of a buffer of this size cost
#: nothing.
USUAL_RATIO = 16
#: Compressed data of fewer bytes: zlib is as quick.
SMALLEST_AT_ONCE = 300
#: libdeflate needs room for the result, which is then copied: above this, memory counts more than time.
LARGEST_AT_ONCE = 1 << 20
#: Data beyond the limit is decompressed in pieces of this size, only to count its bytes.
PIECE_BYTES = 1 << 20


def pack_data(
    oid: bytes, data: bytes, level: int, content: Content | None = None
) -> tuple[int, bytes, bytes]:
    """Return (compression, checksum, data) for AskStoreObject. ``level``: of zlib, 0 for none.
    ``content``: to which the record refers (specification 26.2).

    Raise NEOStorageError if the object is too large.
    """
    compression = 0
    if content is not None:
        data = with_content(data, content)
    elif level and len(data) >= SMALLEST_COMPRESSED_BYTES:
        smaller = compress(data, level)
        if len(smaller) < len(data):
            compression, data = 1, smaller
    if len(data) > LARGEST_BYTES:
        raise NEOStorageError(
            f"object {oid.hex()} has {len(data)} bytes, more than {LARGEST_BYTES}, the most that "
            "travels between two nodes: divide it"
        )
    return compression, sha1(data).digest(), data


def compress(data: bytes, level: int) -> bytes:
    """Return the data compressed in zlib's format. ``level``: 1 to 9, about as small as zlib makes it
    (decision 63). Thread-safe."""
    if len(data) > LARGEST_AT_ONCE:
        return zlib.compress(data, level)
    return bytes(deflate.zlib_compress(data, level))


def unpack_data(compression: int, data: bytes) -> bytes:
    """Return the data, decompressed, without a reference. Raise CorruptedError."""
    if not compression:
        return without_content(data)
    if SMALLEST_AT_ONCE <= len(data) <= LARGEST_AT_ONCE // USUAL_RATIO:
        found = _at_once(data, USUAL_RATIO * len(data))
        if found is not None:
            return found
    try:
        return zlib.decompress(data)
    except zlib.error as e:
        raise CorruptedError(f"compressed data cannot be read: {e}") from None


def sound(answer: AnswerObject | NotifyConflictData) -> bool:
    """Return whether the data matches its checksum. The undo of a creation has no data."""
    return answer.compression is None or sha1(answer.data).digest() == answer.checksum


def data_of(answer: AnswerObject | NotifyConflictData) -> bytes | None:
    """Return the object's data, without a reference; None if its creation was undone. Raise
    CorruptedError."""
    if answer.compression is None:
        return None
    data = answer.data
    if answer.compression:
        return unpack_data(answer.compression, data)
    return data if data[PLACE] != MAGIC else data[:-REFERENCE_BYTES]


def inflate(data: bytes, limit: int) -> tuple[int, bytes | None]:
    """Return (size, value); the value is None if it is larger than the limit. Thread-safe.

    Raise zlib.error for damaged data, but do not verify the end of data that is too large.
    """
    found = _at_once(data, min(limit, USUAL_RATIO * len(data)))
    if found is not None:
        return len(found), found
    if len(data) * ZLIB_RATIO <= limit:
        value = zlib.decompress(data)
        return len(value), value
    return _bounded(data, limit)


def _at_once(data: bytes, room: int) -> bytes | None:
    """Return the decompressed data; None if it is larger than ``room``, or damaged, which zlib tells."""
    try:
        # libdeflate returns nothing if there is no room.
        return bytes(deflate.zlib_decompress(data, room)) if room else None
    except deflate.DeflateError:
        return None


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
