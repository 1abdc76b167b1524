"""Compare two storages transaction by transaction, record by record.

The *packed* mark of a transaction is ignored: it does not describe the data, and storages do not let it
be written.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from hashlib import sha1
from pickle import PickleError
from typing import Any, NamedTuple

from ZODB.Connection import TransactionMetaData

from neo.migrate.listing import metadata, records, whole

#: Length and SHA-1 of data. Digests are compared, so that big transactions need not fit into memory.
_Digest = tuple[int, bytes] | None


#: Errors that loading the pickle of another application may raise.
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
    """``what`` differs in transaction ``tid``."""

    tid: bytes
    what: str

    def __str__(self) -> str:
        return f"transaction 0x{self.tid.hex()}: {self.what}"


def compare(source: Any, destination: Any) -> Generator[tuple[bytes, list[Difference]], None, None]:
    """Yield each transaction of either storage in the order of tids, with its differences.

    Close the generator when it is left early. Raise MigrateError if a storage ends before its last
    transaction.
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
    """Yield the differences of two transactions with the same tid."""
    tid, my_metadata, their_metadata = ours.tid, metadata(ours), metadata(theirs)
    for name in ("user", "description"):
        value, other_value = getattr(my_metadata, name), getattr(their_metadata, name)
        if value != other_value:
            yield Difference(tid, f"{name} is {value!r}, not {other_value!r}")
    # Compare dictionaries, because a storage may pickle the same dictionary in another way.
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
    """Return the extension as a dictionary, or as bytes if a class is missing to read it."""
    try:
        return metadata.extension
    except UNREADABLE:
        return metadata.extension_bytes


def _digests(transaction: Any) -> dict[bytes, _Digest]:
    """Return a digest by oid; of several records of one object in a transaction, the last one counts."""
    found: dict[bytes, _Digest] = {}
    for record in records(transaction):
        data = record.data
        found[record.oid] = None if data is None else (len(data), sha1(data).digest())
    return found


def _say(digest: _Digest) -> str:
    if digest is None:
        return "no data (its creation was undone)"
    return f"{digest[0]} bytes with SHA-1 {digest[1].hex()[:12]}"
