"""Compare two storages transaction by transaction, record by record.

The *packed* mark of a transaction is left out: it says how the storage was treated, not what it
holds, and no storage lets it be written.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from hashlib import sha1
from pickle import PickleError
from typing import Any, NamedTuple

from ZODB.Connection import TransactionMetaData

from neo.migrate.listing import metadata, records, whole

#: Length and SHA-1 of data, so that two big transactions are never in memory as a whole.
_Digest = tuple[int, bytes] | None


#: What loading the pickle of somebody else may raise.
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    TypeError,
    ValueError,
    PickleError,
)


class Difference(NamedTuple):
    """``what`` of transaction ``tid`` is not the same."""

    tid: bytes
    what: str

    def __str__(self) -> str:
        return f"transaction 0x{self.tid.hex()}: {self.what}"


def compare(source: Any, destination: Any) -> Generator[tuple[bytes, list[Difference]], None, None]:
    """Every transaction of either storage in the order of tids, with what differs in it.

    Close it when it is left early. Raises MigrateError if one ends before its last transaction.
    """
    with closing(whole(source)) as ours, closing(whole(destination)) as theirs:
        left, right = next(ours, None), next(theirs, None)
        while True:
            if left is not None and (right is None or left.tid < right.tid):
                yield left.tid, [Difference(left.tid, "is missing in the destination")]
                left = next(ours, None)
            elif right is not None and (left is None or right.tid < left.tid):
                yield right.tid, [Difference(right.tid, "is in the destination only")]
                right = next(theirs, None)
            elif left is not None:
                yield left.tid, list(differences(left, right))
                left, right = next(ours, None), next(theirs, None)
            else:
                return


def differences(ours: Any, theirs: Any) -> Iterator[Difference]:
    """What is not the same in two transactions with the same tid."""
    tid, my_metadata, their_metadata = ours.tid, metadata(ours), metadata(theirs)
    for name in ("user", "description"):
        value, other_value = getattr(my_metadata, name), getattr(their_metadata, name)
        if value != other_value:
            yield Difference(tid, f"{name} is {value!r}, not {other_value!r}")
    # The same dictionary has many pickles, and a storage may write its own.
    if my_metadata.extension_bytes != their_metadata.extension_bytes:
        my_extension, their_extension = _extension(my_metadata), _extension(their_metadata)
        if my_extension != their_extension:
            yield Difference(tid, f"extension is {my_extension!r}, not {their_extension!r}")
    mine, other = _digests(ours), _digests(theirs)
    for oid in sorted(mine.keys() | other.keys()):
        name = f"object 0x{oid.hex()}"
        if oid not in other:
            yield Difference(tid, f"{name} is missing in the destination")
        elif oid not in mine:
            yield Difference(tid, f"{name} is in the destination only")
        elif mine[oid] != other[oid]:
            yield Difference(tid, f"{name} has {_say(mine[oid])}, not {_say(other[oid])}")


def _extension(metadata: TransactionMetaData) -> Any:
    """The dictionary; the bytes of one that cannot be read here, for want of a class."""
    try:
        return metadata.extension
    except UNREADABLE:
        return metadata.extension_bytes


def _digests(transaction: Any) -> dict[bytes, _Digest]:
    """By oid; when a transaction wrote an object twice, what counts is the last."""
    found: dict[bytes, _Digest] = {}
    for record in records(transaction):
        data = record.data
        found[record.oid] = None if data is None else (len(data), sha1(data).digest())
    return found


def _say(digest: _Digest) -> str:
    if digest is None:
        return "no data (its creation was undone)"
    return f"{digest[0]} bytes with SHA-1 {digest[1].hex()[:12]}"
