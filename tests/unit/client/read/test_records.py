"""Data as it travels: when it is compressed, and what its checksum covers."""

from __future__ import annotations

import zlib
from hashlib import sha1
from random import Random

import pytest

from neo.client.errors import CorruptedError
from neo.client.read.records import LARGEST_AT_ONCE, compress, pack_data, unpack_data
from neo.protocol.ids import p64


@pytest.mark.parametrize(("size", "compressed"), [(39, False), (40, True), (5000, True)])
def test_data_is_compressed_from_40_bytes_on(size: int, compressed: bool) -> None:
    """The checksum is that of the bytes that travel (specification 15.15, 15.16)."""
    data = bytes(size)
    compression, checksum, packed = pack_data(p64(1), data, 6)
    assert compression == compressed
    assert (zlib.decompress(packed) if compressed else packed) == data
    assert checksum == sha1(packed).digest()
    assert unpack_data(compression, packed) == data


def test_data_that_would_not_become_shorter_is_left_as_it_is() -> None:
    """Specification 15.16."""
    data = Random(1).randbytes(1000)
    assert pack_data(p64(1), data, 9) == (0, sha1(data).digest(), data)
    assert pack_data(p64(1), bytes(1000), 0)[0] == 0, "compression is switched off"


@pytest.mark.parametrize("level", [1, 6, 9])
@pytest.mark.parametrize("size", [299, 5_000, 100_000, LARGEST_AT_ONCE, LARGEST_AT_ONCE + 1])
@pytest.mark.parametrize("repeated", [1, 40], ids=["usual", "many times smaller"])
def test_data_is_of_zlibs_format_whichever_library_wrote_it(
    size: int, level: int, repeated: int
) -> None:
    """Any implementation reads what a client wrote, and a client what any has (specification 15.16);
    at no level is it much larger than zlib made it (decision 63)."""
    chance = Random(size)
    words = [chance.randbytes(chance.randrange(2, 9)) * repeated for _ in range(100)]
    data = b" ".join(chance.choices(words, k=size // 4))[:size]
    ours, of_zlib = compress(data, level), zlib.compress(data, level)
    assert type(ours) is bytes and zlib.decompress(ours) == data
    assert len(ours) <= 1.1 * len(of_zlib)
    for packed in (ours, of_zlib):
        found = unpack_data(1, packed)
        assert (found, type(found)) == (data, bytes)
        for damaged in (packed[:-1], packed[: len(packed) // 2], packed[:-1] + b"?", b"", b"x"):
            with pytest.raises(CorruptedError):
                unpack_data(1, damaged)
