"""Commits without ZODB's objects, and the resulting contents of a storage."""

from __future__ import annotations

from ZODB.Connection import TransactionMetaData

from neo.client import NEOStorage


def commit(storage: NEOStorage, *stores: tuple[bytes, bytes | None, bytes]) -> bytes:
    t = TransactionMetaData()
    storage.tpc_begin(t)
    for oid, serial, data in stores:
        storage.store(oid, serial, data, "", t)
    storage.tpc_vote(t)
    return storage.tpc_finish(t)
