"""What a node passes to another one of its process is what the bytes of the message would have given."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import astuple

from neo.protocol.codec import LIMIT_PEER, Decoder, encode
from neo.protocol.enums import CellState, NodeType
from neo.protocol.packets import (
    CODES,
    AnswerObject,
    AnswerPartitionTable,
    Message,
    NotifyNodeInformation,
    RequestIdentification,
    StartOperation,
)
from neo.protocol.passing import detach, size_of
from tests.support.passing import difference
from tests.wire.golden import good_packets


def decode(packet: bytes) -> Message:
    decoder = Decoder(LIMIT_PEER)
    decoder.feed(packet)
    found = decoder.take()
    assert found is not None
    return found.message


class Record(bytes):
    """What a library may give for bytes."""


def careless(value: Any) -> Any:
    """The value as senders may build it: lists and tuples exchanged, other classes of bytes."""
    if type(value) is bytes:
        return Record(value)
    if type(value) is list:
        return tuple(map(careless, value))
    if type(value) is tuple:
        return list(map(careless, value))
    if type(value) is dict:
        return {key: careless(item) for key, item in value.items()}
    return value


MESSAGES = [decode(packet) for packet in good_packets()]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_passed_as_decoded(message: Message) -> None:
    assert difference(message, detach(message)) is None
    sent = type(message)(*map(careless, astuple(message)))
    assert difference(sent, detach(sent)) is None


def test_every_message_of_the_protocol_is_among_them() -> None:
    kinds = {type(message) for message in MESSAGES}
    assert {cls for cls, code in CODES.items() if not code & 0x4000} <= kinds


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_the_size_is_about_that_of_the_bytes(message: Message) -> None:
    real = len(encode(0, message))
    assert real / 3 <= size_of(detach(message)) <= 40 + 9 * real


def test_the_sender_may_change_what_it_sent() -> None:
    row: list[Any] = [(1, CellState.UP_TO_DATE)]
    rows = [row]
    passed = detach(AnswerPartitionTable(5, 0, rows))
    row.clear()
    rows.append(row)
    assert passed == AnswerPartitionTable(5, 0, [[(1, CellState.UP_TO_DATE)]])


def test_a_buffer_is_copied_and_bytes_are_not() -> None:
    data, buffer = b"x" * 100, bytearray(b"y" * 100)
    tid = bytes(8)

    def answer(data: Any) -> AnswerObject:
        return AnswerObject(tid, tid, None, 0, bytes(20), data, None)

    whole = detach(answer(data))
    assert isinstance(whole, AnswerObject) and whole.data is data
    copied = detach(answer(buffer))
    buffer[0] = 0
    assert isinstance(copied, AnswerObject) and copied.data == b"y" * 100
    assert type(copied.data) is bytes
    view = detach(answer(memoryview(buffer)))
    assert isinstance(view, AnswerObject) and type(view.data) is bytes


def test_free_values_become_what_the_decoder_gives() -> None:
    extra: dict[str, Any] = {
        "features": ("a", "b"),
        "path": b"/\xff",
        "deep": {"x": [1, (2.5, None)]},
    }
    sent = RequestIdentification(NodeType.STORAGE, 1, ["::1", 5], "neo", 3, extra)  # type: ignore[arg-type]
    passed = detach(sent)
    assert difference(sent, passed) is None
    assert isinstance(passed, RequestIdentification)
    assert passed.extra == {
        "features": ["a", "b"],
        "path": "/\\xff",
        "deep": {"x": [1, [2.5, None]]},
    }
    assert passed.address == ("::1", 5)
    assert type(passed.id_timestamp) is float


@pytest.mark.parametrize(
    ("sent", "passed", "what"),
    [
        (StartOperation(True), StartOperation(1), "backup: 1 instead of True"),  # type: ignore[arg-type]
        (
            NotifyNodeInformation(1.0, []),
            NotifyNodeInformation(1.0, ()),  # type: ignore[arg-type]
            r"node_list: \(\) instead of \[\]",
        ),
        (AnswerPartitionTable(5, 0, []), StartOperation(True), "instead of AnswerPartitionTable"),
    ],
)
def test_the_check_finds_what_decoding_would_not_give(
    sent: Message, passed: Message, what: str
) -> None:
    with pytest.raises(AssertionError, match=what):
        raise AssertionError(difference(sent, passed))


def test_the_check_finds_what_both_could_change() -> None:
    sent = AnswerPartitionTable(5, 0, [[(1, CellState.UP_TO_DATE)]])
    assert "is shared with the sender" in str(difference(sent, sent))
