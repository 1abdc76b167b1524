"""The reference from a record to the content of a blob (specification 26).

The record of a blob ends with a *reference*: it names the content by its length and its checksum. The
bytes of a record mean nothing to the protocol and to the tables. So whatever copies records (votes,
replication, backups, undo, pack, truncation, clones) copies references with them, and only the content
needs messages of its own. Unpicklers stop before the reference: a client that does not know it reads the
record as it was stored.

A content is a file that never changes, equal for all revisions and objects that have its checksum.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from blake3 import blake3

#: Begins a reference. Random bytes, so that no record of an application ends like one.
MAGIC: Final = b"NEO blob \x9d\x3c\x71\xe6\x0a\xd8\x55"
CHECKSUM_BYTES: Final = 32
_REST = Struct(f">Q{CHECKSUM_BYTES}s")
REFERENCE_BYTES: Final = len(MAGIC) + _REST.size
#: Content in a message. Large enough for a fast network, and small beside what a node keeps per peer
#: (:mod:`neo.node.backlog`).
PIECE_BYTES: Final = 512 << 10
#: Pieces of one transfer without an answer: what is sent, on the disk's way, and answered overlap.
PIECES_AHEAD: Final = 4
#: Greatest length of a content: the offset of a file.
SIZE_MAX: Final = (1 << 63) - 1

#: Where the magic bytes are in a record that refers to a content. Compare them before
#: :func:`content_of` is called where each call counts.
PLACE: Final = slice(-REFERENCE_BYTES, len(MAGIC) - REFERENCE_BYTES)


class Content(NamedTuple):
    """``size``: in bytes. ``checksum``: BLAKE3, 32 bytes."""

    size: int
    checksum: bytes

    def __str__(self) -> str:
        return f"{self.checksum.hex()} ({self.size} bytes)"


def content_hash() -> blake3:
    """Return a new object that computes the checksum of a content."""
    return blake3()


def content_of(record: bytes) -> Content | None:
    """Return the content to which a record refers, None if it does not. The record is not compressed:
    those with a reference never are (specification 26.2)."""
    if record[PLACE] != MAGIC:
        return None
    return Content(*_REST.unpack(record[len(MAGIC) - REFERENCE_BYTES :]))


def with_content(record: bytes, content: Content) -> bytes:
    """Return a record with a reference, in the place of the one that it may have."""
    return without_content(record) + MAGIC + _REST.pack(*content)


def without_content(record: bytes) -> bytes:
    """Return a record without its reference: what the application stored."""
    return record[:-REFERENCE_BYTES] if record[PLACE] == MAGIC else record
