"""libdeflate and zlib decompress values to the same results, within the same bounds."""

from __future__ import annotations

import random
import zlib

import pytest

from neo.client.read import records
from neo.client.read.records import inflate

LIMIT = 32 << 20


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"a",
        b"a record of a storage " * 30,
        random.Random(1).randbytes(100_000),
        bytes(5_000_000),
    ],
    ids=len,
)
@pytest.mark.parametrize("level", [0, 1, 9])
def test_a_value_is_what_it_was(value: bytes, level: int) -> None:
    size, found = inflate(zlib.compress(value, level), LIMIT)
    assert (size, found, type(found)) == (len(value), value, bytes)


@pytest.mark.parametrize("size", [1, 100, 5_000_000])
def test_a_value_above_the_limit_is_only_counted(size: int) -> None:
    data = zlib.compress(bytes(size))
    assert inflate(data, size - 1) == (size, None)
    assert inflate(data, size) == (size, bytes(size))


@pytest.mark.parametrize("limit", [100, LIMIT])
def test_what_is_damaged_is_an_error_of_zlib(limit: int) -> None:
    data = zlib.compress(b"a record" * 8)
    wrong_sum = data[:-1] + bytes([data[-1] ^ 1])
    for damaged in (b"", b"x", data[:-1], data[: len(data) // 2], wrong_sum, b"\0" + data):
        with pytest.raises(zlib.error):
            inflate(damaged, limit)


def test_a_bomb_takes_no_memory_beyond_the_limit() -> None:
    assert inflate(zlib.compress(bytes(50 << 20)), 1 << 20) == (50 << 20, None)


def test_usual_records_need_no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    words = random.Random(2).choices(["storage", "node", "object", "of", "a", "b"], k=100)
    values = [" ".join(words).encode(), bytes(50), random.Random(1).randbytes(1000)]
    compressed = [zlib.compress(value) for value in values]
    monkeypatch.setattr(records, "zlib", None)
    for value, data in zip(values, compressed, strict=True):
        assert inflate(data, LIMIT) == (len(value), value)
