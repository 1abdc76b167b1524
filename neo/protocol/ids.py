"""Identifiers: oids, tids and ttids (8 bytes), node ids (32-bit integers), partitions.

The constants and the namespaces of node ids are those of specification 15.3, 15.12.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from persistent.timestamp import TimeStamp
from ZODB.utils import p64, u64

from neo.protocol.enums import NodeType

__all__ = [
    "INVALID_OID",
    "INVALID_PARTITION",
    "INVALID_TID",
    "MAX_TID",
    "NID_NAMESPACES",
    "ZERO_HASH",
    "ZERO_OID",
    "ZERO_TID",
    "add64",
    "format_nid",
    "format_nids",
    "format_xid",
    "nid_namespace",
    "p64",
    "parse_nid",
    "parse_tid",
    "parse_xid",
    "partition_of",
    "tid_from_time",
    "time_from_tid",
    "u64",
]

INVALID_TID = b"\xff" * 8
INVALID_OID = b"\xff" * 8
INVALID_PARTITION = 0xFFFFFFFF
ZERO_HASH = bytes(20)
ZERO_TID = bytes(8)
ZERO_OID = bytes(8)
#: Greatest tid that every backend can keep as a signed 64-bit integer.
MAX_TID = b"\x7f" + b"\xff" * 7

#: Bytes of an xid at most (specification 24.1).
XID_MAX = 140

#: High-order byte of the node ids that the master gives, by type.
NID_NAMESPACES = {
    NodeType.STORAGE: 0x00,
    NodeType.MASTER: -0x10,
    NodeType.CLIENT: -0x20,
    NodeType.ADMIN: -0x30,
}

# A tid is (minutes since 1900 << 32) + fraction of the minute in units of 60 / 2**32 seconds.
_SECOND_UNITS = 2**32 / 60


def partition_of(id_: bytes, partitions: int) -> int:
    """Return the partition of an oid (data) or of a tid (transaction metadata), among ``partitions``."""
    return int.from_bytes(id_, "big") % partitions


def add64(id_: bytes, offset: int) -> bytes:
    """Return ``id_ + offset`` as an id. Raise OverflowError beyond 64 bits."""
    return (int.from_bytes(id_, "big") + offset).to_bytes(8, "big")


def tid_from_time(seconds: float) -> bytes:
    """Return the tid of a moment in seconds since 1970 UTC, as every ZODB storage computes it."""
    # Whole seconds: fromtimestamp() would round the last half microsecond up to the next one.
    moment = datetime.fromtimestamp(seconds // 1, UTC)
    tid: bytes = TimeStamp(
        moment.year,
        moment.month,
        moment.day,
        moment.hour,
        moment.minute,
        seconds % 60,
    ).raw()
    return tid


def time_from_tid(tid: bytes) -> float:
    """Return the seconds since 1970 UTC of a tid; negative before 1970 (ZERO_TID is 1900-01-01)."""
    minutes, units = divmod(int.from_bytes(tid, "big"), 2**32)
    # The count of minutes has 12 months of 31 days, as persistent.TimeStamp defines it.
    days, minute = divmod(minutes, 24 * 60)
    months, day = divmod(days, 31)
    year, month = divmod(months, 12)
    start = datetime(1900 + year, month + 1, 1, tzinfo=UTC).timestamp()
    return start + day * 86400 + minute * 60 + units / _SECOND_UNITS


def parse_tid(text: str) -> bytes:
    """Parse a tid as operators write it: an integer, ``0x…``, or seconds since 1970 with a dot.

    Raises ValueError for anything else and outside 64 bits.
    """
    if "." in text:
        return tid_from_time(float(text))
    number = int(text, 0)
    if not 0 <= number < 2**64:
        raise ValueError(f"{text} is not a 64-bit tid")
    return number.to_bytes(8, "big")


def format_xid(xid: bytes) -> str:
    """Return an xid as people read and type it: as it is if it is printable ASCII without spaces and
    quotes, else 0x and hexadecimal digits."""
    text = xid.decode("ascii", "replace")
    plain = text.isascii() and text.isprintable() and not set(text) & set(" '\"\\")
    return text if plain and not text.startswith("0x") else f"0x{xid.hex()}"


def parse_xid(text: str) -> bytes:
    """Read an xid as :func:`format_xid` writes it. Raises ValueError with a sentence."""
    try:
        xid = bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode("ascii")
    except ValueError:
        raise ValueError(
            f"{text!r} is not an xid: write ASCII text, or 0x and an even number of digits"
        ) from None
    if not 1 <= len(xid) <= XID_MAX:
        raise ValueError(f"an xid has 1 to {XID_MAX} bytes, not {len(xid)}")
    return xid


def nid_namespace(node_type: NodeType) -> int:
    """Return the first part of the ids of a type: an id is this plus 1, 2, 3…"""
    return NID_NAMESPACES[node_type] << 24


def format_nid(nid: int | None) -> str:
    """Return ``S1``, ``M1``, ``C3``, ``A1``; ``?`` for a node without id."""
    if nid is None:
        return "?"
    if nid >= 0:
        return f"S{nid}"
    for node_type, high in NID_NAMESPACES.items():
        if nid >> 24 == high:
            return f"{node_type.name[0]}{nid - (high << 24)}"
    return f"?{nid}"


def format_nids(nids: Iterable[int]) -> str:
    """Return ``S1, S3``, in order; an empty text for no node."""
    return ", ".join(map(format_nid, sorted(nids)))


def parse_nid(text: str) -> int:
    """Return the id that :func:`format_nid` formats so. Raise ValueError with the accepted forms."""
    number = text[1:]
    # So short that it is a number of 64 bits.
    if number.isascii() and number.isdecimal() and len(number) < 19:
        for node_type, high in NID_NAMESPACES.items():
            # Beyond its namespace, a name would be another node's. All ids that are positive are of
            # storage nodes: other implementations may give any of these.
            last = 2**31 - 1 if node_type is NodeType.STORAGE else 2**24 - 1
            if text[0].upper() == node_type.name[0] and 1 <= int(number) <= last:
                return (high << 24) + int(number)
    raise ValueError(f"{text!r} is not a node: write S1, M1, C1 or A1")
