"""Messages of synchronous backups (specification 25): both of their ends, as a test plays them."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import ZERO_HASH, p64, u64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AcceptIdentification,
    Address,
    AddVoted,
    AddVotedObject,
    AskFetchVoted,
    AskStoreTransaction,
    AskStoreVoted,
    AskVoted,
    AskVoteTransaction,
    Error,
    Message,
    NotifyFeatures,
    PreparedMetadata,
    RequestIdentification,
    SyncMark,
)
from tests.unit.storage.replicas import OTHER, reply
from tests.unit.storage.upstream import SOURCE, upstream
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
    assert FEATURE_OURS in end.take(NotifyFeatures).features
    return end


def subscriber(world: World, *partitions: int) -> End:
    """A storage node of a backup subscribes, by asking for a transaction that is not there."""
    end = guest(world, FEATURE_OURS)
    found = end.ask(AskFetchVoted(p64(1), [*partitions]))
    assert refused(found)[0] == ErrorCode.TID_NOT_FOUND.value
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


# -- the upstream cluster is played ----------------------------------------------------------------


def ask_voted(
    master: End, ttid: int, *oids: int, sources: dict[int, Address], mark: SyncMark | None = None
) -> list[Any]:
    """Let the own master ask for rows. Return a list that will have the answer."""
    listed = [p64(oid) for oid in oids]
    return master.ask_later(AskVoted(p64(ttid), "up", sources, listed, mark))


def connected(world: World, master: End, address: Address = SOURCE) -> End:
    """A node of the upstream cluster to which the node is connected, and which it subscribed to."""
    asked = ask_voted(master, 1, sources={0: address})
    source = upstream(world, FEATURE_OURS)
    reply(source, AskFetchVoted, Error(ErrorCode.TID_NOT_FOUND.value, "it has ended"))
    world.wait(lambda: bool(asked), "AskVoted is not answered")
    master.send(AbortTransaction(p64(1), []))
    return source


def send(
    source: End, ttid: int, partition: int, *rows: AddVotedObject, metadata: bool = False
) -> None:
    """Send the rows of a partition; ``metadata``: with that of :func:`meta`."""
    kept = meta(*(u64(each.oid) for each in rows)) if metadata else None
    source.send(AddVoted(p64(ttid), partition, kept))
    for each in rows:
        source.send(each)


def store_later(source: End, ttid: int, *partitions: int) -> list[Any]:
    """Ask the node to make what was sent durable."""
    return source.ask_later(AskStoreVoted(p64(ttid), [*partitions]))


def kept(world: World, ttid: int) -> list[bytes]:
    """The objects that the node has of a transaction that is not committed."""
    return [change.oid for change in world.backend.commits.prepared_rows(p64(ttid)).stored]
