"""The rows of all storage nodes together, for the oracles of the history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha1

from neo.client.records import unpack_data
from neo.protocol.ids import ZERO_TID, p64
from tests.simulator.disk_check import Rows
from tests.simulator.world import Violation


@dataclass
class Tables:
    """Rows of all storage nodes together: oid → serials in order, tid → (mark, oids).

    ``packed``: revisions that are not current at this tid may be gone. ``contents``: (oid, serial) →
    digest, None for deletions. ``masters``: the number of processes that were master.
    """

    serials: dict[bytes, list[bytes]]
    transactions: dict[bytes, tuple[str, frozenset[bytes]]]
    packed: bytes = ZERO_TID
    contents: dict[tuple[bytes, bytes], bytes | None] = field(default_factory=dict)
    masters: int = 1


def digest(data: bytes | None) -> bytes | None:
    """Return the digest that stands for data in a history; None for None and for empty data."""
    return sha1(data).digest() if data else None


def join_tables(disks: Iterable[Rows], masters: int = 1) -> Tables:
    """Join the rows of all storage nodes. Raise Violation if two have different data of a revision."""
    serials: dict[bytes, set[bytes]] = {}
    transactions: dict[bytes, tuple[str, frozenset[bytes]]] = {}
    contents: dict[tuple[bytes, bytes], bytes | None] = {}
    packed = 0
    for rows in disks:
        values = {row[0]: digest(unpack_data(row[2], row[3])) for row in rows["data"]}
        for _, oid, tid, data_id, value_tid in rows["obj"]:
            revision = p64(oid), p64(tid)
            serials.setdefault(revision[0], set()).add(revision[1])
            if data_id is None and value_tid is not None:
                continue  # an undo in an incomplete cell: its data is replicated later
            value = None if data_id is None else values[data_id]
            if contents.setdefault(revision, value) != value:
                raise Violation(f"storages keep different data of {oid:016x} at {tid:016x}")
        for _, tid, _, oids, _, description, *_ in rows["trans"]:
            split = (oids[i : i + 8] for i in range(0, len(oids), 8))
            transactions[p64(tid)] = bytes(description).decode(), frozenset(split)
        config: dict[str, str] = dict(rows["config"])
        packed = max(packed, int(config.get("_pack_tid") or 0))
    ordered = {oid: sorted(tids) for oid, tids in serials.items()}
    return Tables(ordered, transactions, p64(packed), contents, masters)
