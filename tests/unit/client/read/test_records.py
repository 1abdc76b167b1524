"""Data as it travels: when it is compressed, and what its checksum covers."""

from __future__ import annotations

import zlib
from hashlib import sha1
from random import Random

import pytest

from neo.client.read.records import pack_data, unpack_data
from neo.protocol.ids import p64


@pytest.mark.parametrize(("size", "compressed"), [(39, False), (40, True), (5000, True)])
def test_data_is_compressed_from_40_bytes_on(size: int, compressed: bool) -> None:
    """The checksum is that of the bytes that travel (specification 15.15, 15.16)."""
    data = bytes(size)
    compression, checksum, packed = pack_data(p64(1), data, 1)
    assert compression == compressed
    assert packed == (zlib.compress(data, 1) if compressed else data)
    assert checksum == sha1(packed).digest()
    assert unpack_data(compression, packed) == data


def test_data_that_would_not_become_shorter_is_left_as_it_is() -> None:
    """Specification 15.16."""
    data = Random(1).randbytes(1000)
    assert pack_data(p64(1), data, 9) == (0, sha1(data).digest(), data)
    assert pack_data(p64(1), bytes(1000), 0)[0] == 0, "compression is switched off"
