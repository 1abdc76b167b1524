"""Compare two storages transaction by transaction, record by record.

The *packed* mark of a transaction is ignored: it does not describe the data, and storages do not let it
be written.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha1
from pickle import PickleError
from typing import Any, NamedTuple

from ZODB.blob import is_blob_record
from ZODB.Connection import TransactionMetaData

from neo.migrate.blobs import Blob, Blobs, Policy, content
from neo.migrate.listing import metadata, records, whole
from neo.protocol.blobs import Content


@dataclass(frozen=True)
class _Digest:
    """Length and SHA-1 of data, and for a blob its content. ``why``: it cannot be read.

    Digests are compared, so that big transactions need not fit into memory.
    """

    size: int
    checksum: bytes
    is_blob: bool
    content: Content | None
    why: str = field(compare=False)

    def __str__(self) -> str:
        text = f"{self.size} bytes with SHA-1 {self.checksum.hex()[:12]}"
        if not self.is_blob:
            return text
        if self.content is None:
            return f"{text} without content" + (f" ({self.why})" if self.why else "")
        size, checksum = self.content
        return f"{text} and a content of {size} bytes with BLAKE3 {checksum.hex()[:12]}"


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


class Sides(NamedTuple):
    """Two storages whose transactions are compared. ``blobs``: counts contents of the source."""

    source: Any
    destination: Any
    blobs: Blobs


class Difference(NamedTuple):
    """``what`` differs in transaction ``tid``."""

    tid: bytes
    what: str

    def __str__(self) -> str:
        return f"transaction 0x{self.tid.hex()}: {self.what}"


def compare(
    source: Any, destination: Any, blobs: Blobs | None = None
) -> Generator[tuple[bytes, list[Difference]], None, None]:
    """Yield each transaction of either storage in the order of tids, with its differences.

    ``blobs``: counts the contents of blobs, which are compared unless its policy omits them. Close the
    generator when it is left early. Raise MigrateError if a storage ends before its last transaction.
    """
    sides = Sides(source, destination, Blobs() if blobs is None else blobs)
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
                yield left.tid, list(differences(left, right, sides))
                left, right = next(ours, None), next(theirs, None)
            else:
                return


def differences(ours: Any, theirs: Any, sides: Sides) -> Iterator[Difference]:
    """Yield the differences of two transactions with the same tid.

    Raise MigrateError if they have blobs, and one of the storages was opened without its blobs.
    """
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
    mine, other = _digests(ours, sides, sides.source), _digests(theirs, sides, sides.destination)
    for oid in sorted(mine.keys() | other.keys()):
        name = f"object 0x{oid.hex()}"
        if oid not in other:
            yield Difference(tid, f"{name} is missing in the destination")
        elif oid not in mine:
            yield Difference(tid, f"{name} is in the destination only")
        elif mine[oid] != other[oid]:
            yield Difference(tid, f"{name} has {_say(mine[oid])}, not {_say(other[oid])}")
        elif sides.blobs.policy is Policy.REFUSE and _lacks_content(mine[oid]):
            yield Difference(tid, f"{name} is a blob without content in both")


def _extension(metadata: TransactionMetaData) -> Any:
    """Return the extension as a dictionary, or as bytes if a class is missing to read it."""
    try:
        return metadata.extension
    except UNREADABLE:
        return metadata.extension_bytes


def _digests(transaction: Any, sides: Sides, storage: Any) -> dict[bytes, _Digest | None]:
    """Return a digest by oid; of several records of one object in a transaction, the last one counts."""
    found: dict[bytes, _Digest | None] = {}
    for record in records(transaction):
        data = record.data
        if data is None:
            found[record.oid] = None
            continue
        is_blob = sides.blobs.policy is not Policy.OMIT and is_blob_record(data)
        file, why = content(storage, Blob(record.oid, record.tid, None)) if is_blob else (None, "")
        if file is not None and storage is sides.source:
            sides.blobs.counted(file.size)
        found[record.oid] = _Digest(len(data), sha1(data).digest(), is_blob, file, why)
    return found


def _lacks_content(digest: _Digest | None) -> bool:
    return digest is not None and digest.is_blob and digest.content is None


def _say(digest: _Digest | None) -> str:
    return "no data (its creation was undone)" if digest is None else str(digest)
