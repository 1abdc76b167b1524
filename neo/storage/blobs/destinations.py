"""Nodes that cannot keep contents are not sent rows that refer to one (specification 26.18)."""

from __future__ import annotations

from neo.node.peer import Peer
from neo.protocol.blobs import MAGIC, PLACE
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import FEATURE_BLOBS


def check_destination(peer: Peer, oid: bytes, compression: int | None, data: bytes) -> None:
    """Raise ErrorAnswer if the record refers to a content, and the node did not announce ``blobs``."""
    if data[PLACE] != MAGIC or compression:
        return
    if peer.node is None or FEATURE_BLOBS not in peer.node.features:
        raise ErrorAnswer(
            ErrorCode.REPLICATION_ERROR,
            f"object {oid.hex()} has a blob, and {peer} keeps no contents of blobs: set its blob_dir, or"
            " update it",
        )
