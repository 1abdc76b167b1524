"""Messages of synchronous backups (specification 25): both of their ends, as a test plays them."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import ZERO_HASH, p64
from neo.protocol.packets import (
    FEATURE_SYNC,
    FEATURES,
    AcceptIdentification,
    AddVotedObject,
    AskFetchVoted,
    AskStoreTransaction,
    AskVoteTransaction,
    Message,
    NotifyFeatures,
    PreparedMetadata,
    RequestIdentification,
)
from tests.unit.storage.replicas import OTHER
from tests.unit.storage.world import End, World, refused


def meta(*oids: int) -> PreparedMetadata:
    """The metadata of :func:`tests.unit.storage.requests.vote`."""
    return (b"user", b"note", b"ext", [p64(oid) for oid in oids])


def row(ttid: int, oid: int, data: bytes | None, serial: int | None = None) -> AddVotedObject:
    checksum = ZERO_HASH if data is None else sha1(data).digest()
    source = None if serial is None else p64(serial)
    return AddVotedObject(p64(ttid), p64(oid), 0, checksum, data or b"", source)


# -- the upstream cluster is real ------------------------------------------------------------------


def guest(world: World, *features: str) -> End:
    """A storage node of a backup connects."""
    end = world.stranger()
    extra = {FEATURES: list(features)}
    request = RequestIdentification(NodeType.STORAGE, None, OTHER, "test", 3.0, extra)
    assert end.ask(request) == AcceptIdentification(NodeType.STORAGE, None, None)
    assert FEATURE_SYNC in end.take(NotifyFeatures).features
    return end


def subscriber(world: World, *partitions: int) -> End:
    """A storage node of a backup subscribes, by asking for a transaction that is not there."""
    end = guest(world, FEATURE_SYNC)
    answer = end.ask(AskFetchVoted(p64(1), [*partitions]))
    assert refused(answer)[0] == ErrorCode.TID_NOT_FOUND.value
    return end


def vote_later(client: End, ttid: int, *oids: int, metadata: bool = True) -> list[Any]:
    """A list that will have the answer to the vote."""
    if not metadata:
        return client.ask_later(AskVoteTransaction(p64(ttid)))
    user, note, extension, listed = meta(*oids)
    return client.ask_later(AskStoreTransaction(p64(ttid), user, note, extension, listed))


def messages(end: End) -> list[Message]:
    """What the node has sent until now."""
    found = [message for _, message in end.inbox]
    end.inbox.clear()
    return found
