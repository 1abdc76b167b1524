"""The bytes of a partition's file (specification 28.5 to 28.9).

Theory of operation
-------------------
A file is MAGIC and a sequence of blocks: HEADER, TRANSACTIONS…, CONTENTS and OBJECTS…, KEPT…, END. A
block is a head (kind and length), a payload in MessagePack, and a digest. The key of each digest is the
digest of the block before, and MAGIC for the first. So a block that is changed, removed, repeated or
moved does not match, and the last digest of a file stands for all of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from struct import Struct as Layout
from typing import Annotated, Final, NamedTuple

from blake3 import blake3
from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder

from neo.protocol.blobs import CHECKSUM_BYTES, PLACE, Content, content_of
from neo.protocol.blobs import MAGIC as REFERENCE
from neo.protocol.packets import Count, Number, Oid, RevisionRow, Tid

#: Begins each file, and is the key of its first digest: 32 bytes.
MAGIC: Final = b"NEO archive partition, format 1\n"
#: What the magic bytes of every format have in common.
ANY_FORMAT: Final = b"NEO archive partition, format "
DIGEST_BYTES: Final = 32
#: Kind and length of the payload.
HEAD: Final = Layout(">cI")
#: A block ends with the row that makes it so long. It costs little to keep, and its digest, its calls of
#: the system and its 37 bytes of frame are nothing beside it.
BLOCK_BYTES: Final = 1 << 20
#: Greatest length of a payload: more than any row, since a message has at most 512 MiB
#: (specification 2.26), and an oid takes 10 bytes here.
PAYLOAD_MAX: Final = 1 << 30
#: Bytes that a row takes besides its values, about.
ROW_BYTES: Final = 64

HEADER: Final = b"H"
TRANSACTIONS: Final = b"T"
CONTENTS: Final = b"C"
OBJECTS: Final = b"O"
KEPT: Final = b"K"
END: Final = b"E"

Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
#: (tid, user, description, extension, packed, oids, ttid)
TransactionRow = tuple[Tid, bytes, bytes, bytes, bool, Sequence[Oid], Tid]


class ArchiveError(Exception):
    """What is asked of an archive cannot be done; the message says why and what to do."""


class ArchiveDamaged(ArchiveError):
    """A file of an archive is not as it was written. ``offset``: in bytes."""

    def __init__(self, path: object, offset: int, what: str) -> None:
        super().__init__(
            f"{path} is damaged at byte {offset}: {what}; replace it by an intact copy of this file, or"
            " restore from another copy of the database"
        )
        self.path = str(path)
        self.offset = offset


class Last(Struct, frozen=True, forbid_unknown_fields=True):
    """The last transaction of a partition. ``digest``: see :func:`last_of`."""

    tid: Tid
    digest: Digest


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file of a partition holds: rows with ``after`` < tid <= ``tid``. ``after``: None for a
    full copy."""

    cluster: str
    partition: Count
    partitions: Count
    after: Tid | None
    tid: Tid


ContentRow = tuple[Number, Annotated[bytes, Meta(min_length=CHECKSUM_BYTES, max_length=CHECKSUM_BYTES)]]


class End(Struct, forbid_unknown_fields=True):
    """The last block. ``contents``: rows of CONTENTS. ``last``: also from copies before.
    ``lost``: contents that the cluster had lost."""

    transactions: Number = 0
    objects: Number = 0
    contents: Number = 0
    last: Last | None = None
    lost: list[ContentRow] = []


class Transactions(NamedTuple):
    rows: list[TransactionRow]


class Contents(NamedTuple):
    """The contents to which the next objects refer."""

    rows: list[Content]


class Objects(NamedTuple):
    rows: list[RevisionRow]


class Kept(NamedTuple):
    """Revisions (tid, oid) of the copies before that the database still had, ascending."""

    rows: list[tuple[bytes, bytes]]


Block = Header | Transactions | Contents | Objects | Kept | End

_encoder = Encoder()
_header = Decoder(Header)
_transactions = Decoder(list[tuple[Tid, bytes, bytes, bytes, bool, list[Oid], Tid]])
_contents = Decoder(list[ContentRow])
_objects = Decoder(list[RevisionRow])
_kept = Decoder(list[tuple[Tid, Oid]])
_end = Decoder(End)


class BlockEncoder:
    """Makes the blocks of one file. The buffer of a block is valid until the next one is made."""

    def __init__(self) -> None:
        self.digest = MAGIC
        self._buffer = bytearray()

    def encode(self, kind: bytes, value: object) -> bytearray:
        """Return a block with its head and its digest. Raise ArchiveError if it is too long."""
        buffer = self._buffer
        _encoder.encode_into(value, buffer, HEAD.size)
        length = len(buffer) - HEAD.size
        if length > PAYLOAD_MAX:
            raise ArchiveError(f"a row of {length} bytes is too long for an archive: delete it, and pack")
        HEAD.pack_into(buffer, 0, kind, length)
        self.digest = blake3(buffer, key=self.digest).digest()
        buffer += self.digest
        return buffer


def digest_after(previous: bytes, head: bytes, payload: memoryview) -> bytes:
    """Return the digest of a block. ``previous``: that of the block before."""
    return blake3(head, key=previous).update(payload).digest()


def decode(kind: bytes, payload: memoryview) -> Block:
    """Return the value of a block. Raise ValueError."""
    if kind == OBJECTS:
        return Objects(_objects.decode(payload))
    if kind == CONTENTS:
        return Contents([Content(*row) for row in _contents.decode(payload)])
    if kind == TRANSACTIONS:
        return Transactions(list(_transactions.decode(payload)))
    if kind == KEPT:
        return Kept(_kept.decode(payload))
    if kind == HEADER:
        return _header.decode(payload)
    if kind == END:
        return _end.decode(payload)
    raise ValueError(f"{kind!r} is not a kind of blocks")


def sizes_of_transactions(rows: Iterable[TransactionRow]) -> list[int]:
    """Return about how many bytes each row takes."""
    return [
        ROW_BYTES + len(user) + len(description) + len(extension) + 10 * len(oids)
        for _, user, description, extension, _, oids, _ in rows
    ]


def sizes_of_objects(rows: Iterable[RevisionRow]) -> list[int]:
    """Return about how many bytes each row takes."""
    return [ROW_BYTES + len(row[5] or b"") for row in rows]


def full_blocks(sizes: Sequence[int], begun: int) -> Iterator[int]:
    """Yield the ends of the blocks that rows of these sizes fill. ``begun``: bytes in the first one."""
    totals = list(accumulate(sizes))
    full, end = BLOCK_BYTES - begun, 0
    while (end := bisect_left(totals, full, end)) < len(totals):
        full = totals[end] + BLOCK_BYTES
        end += 1
        yield end


def contents_of(rows: Iterable[RevisionRow]) -> set[Content]:
    """Return the contents to which rows refer (specification 26.2)."""
    found = set()
    for row in rows:
        value = row[5]
        if value and value[PLACE] == REFERENCE and not row[2]:
            content = content_of(value)
            assert content is not None
            found.add(content)
    return found


def last_of(row: TransactionRow) -> Last:
    """Return the tid of a transaction with the BLAKE3 of its row. ``packed`` does not count, because a
    pack changes it."""
    tid, user, description, extension, _, oids, ttid = row
    values = tid, user, description, extension, list(oids), ttid
    return Last(tid, blake3(_encoder.encode(values)).digest())
