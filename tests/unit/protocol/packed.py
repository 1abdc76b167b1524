"""Bytes of packets, right and wrong."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from neo.protocol.codec import LIMIT_PEER, Decoder
from neo.protocol.errors import PeerError

OID = bytes(8)


def decode(data: bytes, limit: int = LIMIT_PEER) -> list[Any]:
    decoder = Decoder(limit)
    decoder.feed(data)
    return list(iter(decoder.take, None))


def refusal(data: bytes, limit: int = LIMIT_PEER) -> str:
    with pytest.raises(PeerError) as caught:
        decode(data, limit)
    return str(caught.value)


def packed(*packet: Any) -> bytes:
    data: bytes = msgpack.packb(packet, use_bin_type=True)
    return data
