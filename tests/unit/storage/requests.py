"""Requests of clients and of the master that a test sends to a storage node."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from neo.protocol.ids import p64
from neo.protocol.packets import (
    AnswerStoreTransaction,
    AskLockInformation,
    AskObject,
    AskStoreObject,
    AskStoreTransaction,
    NotifyUnlockInformation,
)
from tests.unit.storage.world import End


def data_of(number: int) -> bytes:
    return b"data of %d" % number


def store_request(
    ttid: int, oid: int, serial: int = 0, data: bytes | None = None
) -> AskStoreObject:
    data = data_of(ttid) if data is None else data
    return AskStoreObject(p64(oid), p64(serial), 0, sha1(data).digest(), data, None, p64(ttid))


def store(client: End, ttid: int, oid: int, serial: int = 0) -> bytes | None:
    answer = client.ask(store_request(ttid, oid, serial))
    locked: bytes | None = answer.locked
    return locked


def vote(client: End, ttid: int, *oids: int) -> None:
    request = AskStoreTransaction(p64(ttid), b"user", b"note", b"ext", [p64(oid) for oid in oids])
    assert client.ask(request) == AnswerStoreTransaction()


def voted(client: End, ttid: int, *oids: int) -> None:
    """Objects are stored on top of nothing, and their transaction votes with metadata."""
    for oid in oids:
        assert store(client, ttid, oid) is None
    vote(client, ttid, *oids)


def finish(master: End, ttid: int, tid: int) -> None:
    assert master.ask(AskLockInformation(p64(ttid), p64(tid))).ttid == p64(ttid)
    master.send(NotifyUnlockInformation(p64(ttid)))
    master.world.settle()


def commit(master: End, client: End, ttid: int, tid: int, oid: int, serial: int = 0) -> None:
    assert store(client, ttid, oid, serial) is None
    vote(client, ttid, oid)
    finish(master, ttid, tid)


def commit_twice(master: End, client: End, oid: int) -> None:
    """The object has the revisions 12 and 16, with the data of 10 and 14."""
    commit(master, client, 10, 12, oid)
    commit(master, client, 14, 16, oid, serial=12)


def load(client: End, oid: int, at: int | None = None, before: int | None = None) -> Any:
    at_tid = None if at is None else p64(at)
    return client.ask(AskObject(p64(oid), at_tid, None if before is None else p64(before)))
