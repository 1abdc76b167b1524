"""The revision with which a store conflicts, which a storage node may tell before it is committed
(specification 8.31, 8.32)."""

from __future__ import annotations

from collections.abc import Iterable

from ZODB.POSException import POSError

from neo.client.connect.storages import StorageConnections
from neo.client.read.records import data_of, sound
from neo.client.read.replicas import Replicas
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import FEATURE_OURS, AskObject


def sent_data(storages: StorageConnections, ttid: bytes, oid: bytes, serial: bytes) -> bytes:
    """Return the data that a node has sent with a conflict; empty if it must be loaded."""
    sent = storages.conflicting(ttid, oid, serial)
    return b"" if sent is None or not sound(sent) else data_of(sent) or b""


def await_commit(
    storages: StorageConnections, replicas: Replicas, nids: Iterable[int], oid: bytes, serial: bytes
) -> None:
    """Wait until the transaction ``serial`` can be read, after a conflict that could not be resolved.
    Otherwise the application would begin again before that, and meet the same conflict. ``nids``: the
    nodes that may have told of it early."""
    if not any(FEATURE_OURS in storages.announced(nid) for nid in nids):
        return
    try:
        replicas.read(oid, AskObject(oid, serial, None))
    except (POSError, ErrorAnswer):
        pass  # the caller raises the conflict in any case
