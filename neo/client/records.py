"""Object data on the wire: compressed or not, with its SHA-1 checksum."""

from __future__ import annotations

import zlib
from hashlib import sha1

from neo.client.errors import CorruptedError, NEOStorageError
from neo.protocol.codec import LIMIT_PEER
from neo.protocol.packets import AnswerObject

#: zlib does not make smaller data any shorter.
SMALLEST_COMPRESSED_BYTES = 40
#: An object must fit in one message, with room for the rest of the message.
LARGEST_BYTES = LIMIT_PEER - 4096
#: A node of another implementation does not survive a message of 64 MiB (FACTS 1.7).
FOREIGN_LARGEST_BYTES = (64 << 20) - 4096


def pack_data(oid: bytes, data: bytes, level: int) -> tuple[int, bytes, bytes]:
    """Return (compression, checksum, data) for AskStoreObject. ``level``: of zlib, 0 for none.

    Raise NEOStorageError if the object is too large.
    """
    compression = 0
    if level and len(data) >= SMALLEST_COMPRESSED_BYTES:
        smaller = zlib.compress(data, level)
        if len(smaller) < len(data):
            compression, data = 1, smaller
    if len(data) > LARGEST_BYTES:
        raise NEOStorageError(
            f"object {oid.hex()} has {len(data)} bytes, more than {LARGEST_BYTES}, the most that "
            "travels between two nodes: divide it"
        )
    return compression, sha1(data).digest(), data


def unpack_data(compression: int, data: bytes) -> bytes:
    """Return the data, decompressed. Raise CorruptedError."""
    if not compression:
        return data
    try:
        return zlib.decompress(data)
    except zlib.error as e:
        raise CorruptedError(f"compressed data cannot be read: {e}") from None


def sound(answer: AnswerObject) -> bool:
    """Return whether the data matches its checksum. The undo of a creation has no data."""
    return answer.compression is None or sha1(answer.data).digest() == answer.checksum


def data_of(answer: AnswerObject) -> bytes | None:
    """Return the object's data; None if its creation was undone. Raise CorruptedError."""
    if answer.compression is None:
        return None
    return unpack_data(answer.compression, answer.data)
