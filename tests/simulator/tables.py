"""The rows of all storage nodes together, for the oracles of the history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha1

from ZODB.blob import is_blob_record

from neo.client.read.records import unpack_data
from neo.protocol.blobs import content_of
from neo.protocol.ids import ZERO_TID, p64
from tests.simulator.disk_check import Rows
from tests.simulator.world import Violation

#: Is in each record of a blob.
BLOB_MODULE = b"ZODB.blob"


@dataclass
class Tables:
    """Rows of all storage nodes together: oid → serials in order, tid → (mark, oids).

    ``packed``: revisions that are not current at this tid may be gone. ``contents``: (oid, serial) →
    digest, None for deletions. ``blobs``: (oid, serial) → content of the blob, by hexadecimal checksum.
    ``bare``: revisions of blobs without a content. ``masters``: the number of processes that were master.
    """

    serials: dict[bytes, list[bytes]]
    transactions: dict[bytes, tuple[str, frozenset[bytes]]]
    packed: bytes = ZERO_TID
    contents: dict[tuple[bytes, bytes], bytes | None] = field(default_factory=dict)
    masters: int = 1
    blobs: dict[tuple[bytes, bytes], str] = field(default_factory=dict)
    bare: list[tuple[bytes, bytes]] = field(default_factory=list)


def digest(data: bytes | None) -> bytes | None:
    """Return the digest that stands for data in a history; None for None and for empty data."""
    return sha1(data).digest() if data else None


def join_tables(disks: Iterable[Rows], masters: int = 1) -> Tables:
    """Join the rows of all storage nodes. Raise Violation if two have different data of a revision."""
    serials: dict[bytes, set[bytes]] = {}
    transactions: dict[bytes, tuple[str, frozenset[bytes]]] = {}
    contents: dict[tuple[bytes, bytes], bytes | None] = {}
    blobs: dict[tuple[bytes, bytes], str] = {}
    bare: list[tuple[bytes, bytes]] = []
    packed = 0
    for rows in disks:
        values = {row[0]: _value(row[2], row[3]) for row in rows["data"]}
        for _, oid, tid, data_id, value_tid in rows["obj"]:
            revision = p64(oid), p64(tid)
            serials.setdefault(revision[0], set()).add(revision[1])
            if data_id is None and value_tid is not None:
                continue  # an undo in an incomplete cell: its data is replicated later
            value, content, is_bare = NOTHING if data_id is None else values[data_id]
            if content is not None:
                blobs[revision] = content
            if is_bare:
                bare.append(revision)
            if contents.setdefault(revision, value) != value:
                raise Violation(f"storages keep different data of {oid:016x} at {tid:016x}")
        for _, tid, _, oids, _, description, *_ in rows["trans"]:
            split = (oids[i : i + 8] for i in range(0, len(oids), 8))
            transactions[p64(tid)] = bytes(description).decode(), frozenset(split)
        config: dict[str, str] = dict(rows["config"])
        packed = max(packed, int(config.get("_pack_tid") or 0))
    ordered = {oid: sorted(tids) for oid, tids in serials.items()}
    return Tables(ordered, transactions, p64(packed), contents, masters, blobs, bare)


#: Digest of the data, content of the blob, and whether this is a blob without a content.
Value = tuple[bytes | None, str | None, bool]
NOTHING: Value = None, None, False


def _value(compression: int, stored: bytes) -> Value:
    data = unpack_data(compression, stored)
    content = None if compression else content_of(stored)
    if content is None:
        return digest(data), None, BLOB_MODULE in data and is_blob_record(data)
    return digest(data), content.checksum.hex(), False
