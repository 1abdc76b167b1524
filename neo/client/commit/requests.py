"""The message that brings a change of a transaction to a storage node."""

from __future__ import annotations

from typing import Any

from neo.client.commit.participants import Change, Kind
from neo.client.read.records import pack_data
from neo.protocol.ids import ZERO_HASH
from neo.protocol.packets import AskCheckCurrentSerial, AskStoreObject, Request


def request_of(ttid: bytes, oid: bytes, change: Change, base: bytes, compress: int) -> Request[Any]:
    """Return the store or check of a change upon the revision ``base``. ``compress``: the level of zlib
    for data; a record that refers to a content is never compressed."""
    if change.kind is Kind.CHECK:
        return AskCheckCurrentSerial(ttid, oid, base)
    if change.data is None:
        stored = 0, ZERO_HASH, b""
    elif change.blob is None:
        stored = pack_data(oid, change.data, compress)
    else:
        stored = pack_data(oid, change.data, 0, change.blob.content)
    return AskStoreObject(oid, base, *stored, change.data_serial, ttid)
