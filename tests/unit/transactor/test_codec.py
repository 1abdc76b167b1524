"""The encoding of messages and records."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from neo.transactor.codec import CodecError, messages, records
from neo.transactor.messages import (
    MESSAGES,
    RECORDS,
    Data,
    Entries,
    Entry,
    Estimate,
    Propose,
    Sid,
    Spec,
    Status,
    Vote,
)

SPEC = Spec(Sid(65535, (1 << 64) - 1), 0, b"\x00data\xff")
SAMPLES: list[Any] = [
    Propose((1 << 64) - 1, 7, Sid(3, 4)),
    Estimate(1, 2, None, -1),
    Estimate(1, 2, Sid(0, 1), 1),
    Data(SPEC),
    Entries(5, (SPEC, SPEC), b"genesis", 9),
    Entries(5, (), b"", 9),
    Status(1, 2, True, False),
]


@pytest.mark.parametrize("message", SAMPLES, ids=repr)
def test_what_is_decoded_is_what_was_encoded(message: Any) -> None:
    decoded = messages.decode(messages.encode(message))
    assert decoded == message and type(decoded) is type(message)


def test_records_have_their_own_codes() -> None:
    for record in (Vote(1, 2, None, -1), Entry(9, SPEC)):
        assert records.decode(records.encode(record)) == record
    assert len(set(MESSAGES)) == 14 and len(set(RECORDS)) == 5


@pytest.mark.parametrize(
    "value",
    [
        *([], [99], [-1], ["x"], 5, None, [2, 1, 2], [2, 1, 2, [3, 4], 5], [2, 1, 2, [3]]),
        *([2, 1, 2, None], [2, -2, 2, [3, 4]], [2, True, 2, [3, 4]], [2, 1.0, 2, [3, 4]]),
        *([7, [[1, 2], 0, "text"]], [7, 5], [10, 5, {}, b"", 9], [11, 1, 2, 1, False]),
    ],
    ids=repr,
)
def test_what_is_not_a_message_is_refused(value: Any) -> None:
    with pytest.raises(CodecError):
        messages.decode(msgpack.packb(value))


def test_garbage_raises_nothing_else() -> None:
    chance = random.Random(1)
    whole = [messages.encode(sample) for sample in SAMPLES]
    for _ in range(20_000):
        data = bytearray(chance.choice(whole))
        data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            messages.decode(bytes(data[: chance.randrange(len(data) + 1)]))
        except CodecError:
            continue
