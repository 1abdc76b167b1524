"""What clients and other nodes send of contents, and what the node then has."""

from __future__ import annotations

from typing import Any

from neo.protocol.blobs import PIECE_BYTES, with_content
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import p64
from neo.protocol.packets import (
    FEATURE_BLOBS,
    AcceptIdentification,
    AnswerBlob,
    AnswerStoreBlob,
    AnswerStoreObject,
    AskBlob,
    AskStoreBlob,
    AskStoreObject,
    Error,
    NotifyFeatures,
    Ping,
    Pong,
    RequestIdentification,
)
from tests.unit.storage.blobs.contents import content_of
from tests.unit.storage.replicas import answer, reply, take_question
from tests.unit.storage.requests import finish, store_request, vote
from tests.unit.storage.world import End, World

OID, TTID = 2, 10


def record_of(data: bytes) -> bytes:
    return with_content(b"pickle", content_of(data))


def piece(data: bytes, offset: int = 0, last: bool = True, ttid: int = TTID) -> AskStoreBlob:
    """A piece; the last one of a content of which ``data`` is the whole."""
    checksum = content_of(data).checksum if last else None
    return AskStoreBlob(p64(ttid), p64(OID), offset, data[offset:], checksum)


def store_of(data: bytes, ttid: int = TTID, serial: int = 0) -> AskStoreObject:
    record = record_of(data)
    return store_request(ttid, OID, serial, record)


def upload(client: End, data: bytes, ttid: int = TTID) -> None:
    assert client.ask(piece(data, ttid=ttid)) == AnswerStoreBlob(p64(ttid), p64(OID))


def commit_blob(
    master: End, client: End, data: bytes, tid: int, ttid: int = TTID, serial: int = 0
) -> None:
    upload(client, data, ttid)
    assert client.ask(store_of(data, ttid, serial)) == AnswerStoreObject(None)
    vote(client, ttid, OID)
    finish(master, ttid, tid)


def read(client: End, data: bytes, offset: int = 0, length: int = PIECE_BYTES) -> Any:
    return client.ask(AskBlob(p64(OID), content_of(data).checksum, offset, length))


def give(end: End, data: bytes, sent: bytes | None = None) -> int:
    """Answer the next piece, of ``sent`` if it is not ``data``; return its offset."""
    message_id, m = take_question(end, AskBlob)
    assert m.checksum == content_of(data).checksum
    offset: int = m.offset
    answer(end, message_id, AnswerBlob((sent or data)[offset : offset + m.length]))
    return offset


def refuse(end: End, code: ErrorCode = ErrorCode.OID_NOT_FOUND) -> None:
    reply(end, AskBlob, Error(code.value, "it is not here"))


def has_row(world: World, oid: int = 2) -> bool:
    return world.backend.reads.load(p64(oid), None, None) is not None


def lost(world: World) -> list[bytes]:
    return list(world.core.blobs.contents.lost)


def names(*contents: bytes) -> list[str]:
    return sorted(content_of(data).checksum.hex() for data in contents)


def holder(world: World, nid: int) -> End:
    """Another node is dialed, accepts, and then says that it keeps contents."""
    world.wait(lambda: bool(world.host.dialed), f"S{nid} is not dialed")
    end = world.take_dial()
    reply(end, RequestIdentification, AcceptIdentification(NodeType.STORAGE, nid, 1))
    message_id, _ = take_question(end, Ping)
    end.send(NotifyFeatures([FEATURE_BLOBS]))
    answer(end, message_id, Pong())
    return end
