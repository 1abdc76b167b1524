"""What the storage nodes of an object can take: refused before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator

from neo.client.connect.connections import LOST, Backoff
from neo.client.connect.master import View
from neo.client.connect.storages import StorageConnections
from neo.client.errors import NEOStorageError
from neo.client.read.records import FOREIGN_LARGEST_BYTES
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import FEATURE_BLOBS


def _features(
    storages: StorageConnections, view: View, oid: bytes, backoff: Backoff
) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield the features of each node that can be connected. The object is not sent to other nodes."""
    for nid in view.writable[view.partition(oid)]:
        try:
            features = storages.features(nid, backoff)
        except (*LOST, ErrorAnswer):
            continue
        yield nid, features


def check_size(
    storages: StorageConnections, view: View, oid: bytes, backoff: Backoff, size: int
) -> None:
    """Raise NEOStorageError if a record is too large for a node of another implementation."""
    for nid, features in _features(storages, view, oid, backoff):
        if not features:
            raise NEOStorageError(
                f"object {oid.hex()} has {size} bytes, more than {FOREIGN_LARGEST_BYTES}, the most"
                f" that {format_nid(nid)}, of another implementation, can take: divide it"
            )


def check_blobs(
    storages: StorageConnections, view: View, oid: bytes, backoff: Backoff
) -> None:
    """Raise NEOStorageError if a node cannot keep contents of blobs (specification 26.14)."""
    for nid, features in _features(storages, view, oid, backoff):
        if FEATURE_BLOBS not in features:
            raise NEOStorageError(
                f"object {oid.hex()} has a blob, which {format_nid(nid)} cannot keep: it has no blob_dir,"
                " or it is of another implementation"
            )
