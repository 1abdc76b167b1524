"""The file format of a kept cache: what the cache was at one transaction.

::

    magic, last tid, digest of its oids, length of the cluster's name, the name
    oid, tid, next tid or zero, queue, size, data      for each record
    ff…ff                                              in place of the next record
    digest of all bytes before

Numbers are big-endian. A file is whole or worth nothing: a reader uses no record before the digest at
the end matched, and nothing follows the digest. So a file needs no sync, whatever a crash leaves of it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from hashlib import blake2b, sha1
from typing import BinaryIO, NamedTuple

from neo.client.read.cache import Record
from neo.protocol.ids import INVALID_OID, ZERO_TID

MAGIC = b"NEO cache 1\n"
_HEAD = struct.Struct(">12s8s20sH")
_RECORD = struct.Struct(">8s8s8s?I")
_END = INVALID_OID
_DIGEST_BYTES = 32
#: Bytes that are written at once.
_PIECE_BYTES = 1 << 20


class UnusableError(Exception):
    """A kept cache must not be used; the message says why."""


class Anchor(NamedTuple):
    """A transaction by which a history is known: its tid, and the digest of the oids that it changed."""

    tid: bytes
    digest: bytes

    @classmethod
    def of(cls, tid: bytes, oids: Iterable[bytes]) -> Anchor:
        return cls(tid, sha1(b"".join(sorted(set(oids)))).digest())


class Snapshot(NamedTuple):
    """``anchor``: the last transaction that took effect on the records."""

    anchor: Anchor
    records: list[Record]


def write(file: BinaryIO, cluster: str, anchor: Anchor, records: Iterable[Record]) -> None:
    """Write what a cache was when ``anchor`` was the last transaction. ``records`` may have changed
    since: what later transactions did is left out. Raise OSError."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    name, last = cluster.encode(), anchor.tid
    pieces = [_HEAD.pack(MAGIC, last, anchor.digest, len(name)), name]
    size = 0
    for record in records:
        next_tid, data = record.next_tid, record.data
        if data is None or record.tid > last:
            continue
        if next_tid is None or next_tid > last:
            next_tid = ZERO_TID
        pieces += _RECORD.pack(record.oid, record.tid, next_tid, record.main, len(data)), data
        size += len(data) + _RECORD.size
        if size >= _PIECE_BYTES:
            _flush(file, digest, pieces)
            size = 0
    pieces.append(_END)
    _flush(file, digest, pieces)
    _write(file, digest.digest())


def _flush(file: BinaryIO, digest: blake2b, pieces: list[bytes]) -> None:
    piece = b"".join(pieces)
    pieces.clear()
    digest.update(piece)
    _write(file, piece)


def _write(file: BinaryIO, data: bytes) -> None:
    """Write all bytes to a file that may take some of them at a time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


class _Reader:
    """Reads a file and computes its digest."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = os.fstat(file.fileno()).st_size
        self._digest = blake2b(digest_size=_DIGEST_BYTES)

    def take(self, size: int) -> bytes:
        """Return the next bytes. Raise UnusableError at the end of the file, OSError."""
        data = self._file.read(size) if size <= self._left else b""
        if len(data) != size:
            raise UnusableError("the file is truncated, or damaged")
        self._left -= size
        self._digest.update(data)
        return data

    def head(self, cluster: str) -> Anchor:
        magic, tid, digest, length = _HEAD.unpack(self.take(_HEAD.size))
        if magic != MAGIC:
            raise UnusableError("the file is no cache of this version of NEO")
        if self.take(length) != cluster.encode():
            raise UnusableError("the file is of another cluster")
        return Anchor(tid, digest)

    def end(self) -> None:
        expected = self._digest.digest()
        if self.take(_DIGEST_BYTES) != expected or self._left:
            raise UnusableError("the file does not match its digest: it is damaged")


def read(file: BinaryIO, cluster: str) -> Snapshot:
    """Return what was written for a cluster of this name. Raise UnusableError, OSError."""
    reader = _Reader(file)
    anchor = reader.head(cluster)
    records = []
    while (oid := reader.take(len(_END))) != _END:
        rest = reader.take(_RECORD.size - len(_END))
        _, tid, next_tid, main, size = _RECORD.unpack(oid + rest)
        data = reader.take(size)
        record = Record(oid, tid, None if next_tid == ZERO_TID else next_tid, data)
        record.main = main
        records.append(record)
    reader.end()
    return Snapshot(anchor, records)


def read_anchor(file: BinaryIO, cluster: str) -> Anchor:
    """Return the last transaction of a file, which may be damaged. Raise UnusableError, OSError."""
    return _Reader(file).head(cluster)
