"""Every recorded packet is encoded to the same bytes and decoded from any portions of them."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.codec import LIMIT_PEER, Decoder, Packet, encode
from neo.protocol.errors import PeerError
from neo.protocol.packets import CODES, Ping
from tests.wire.golden import CAPTURED, GOLDEN, examples, good_packets

GOOD = good_packets()


def decode(*portions: bytes) -> list[Packet]:
    decoder = Decoder(LIMIT_PEER)
    packets = []
    for portion in portions:
        decoder.feed(portion)
        packets += list(iter(decoder.take, None))
    return packets


def identify(packet: bytes) -> str:
    return f"{packet[:8].hex()}-{len(packet)}"


def test_the_record_is_whole() -> None:
    assert len(GOLDEN["messages"]) == 70
    with_bytes = [entry for entry in GOLDEN["messages"] if entry["hex"]]
    assert len(with_bytes) == 70
    assert len(GOOD) > 300


@pytest.mark.parametrize("packet", GOOD, ids=identify)
def test_encoded_to_the_same_bytes(packet: bytes) -> None:
    """Specification 2.7, 2.8."""
    (decoded,) = decode(packet)
    assert decoded.message_id is None or decoded.message_id >= 0
    assert encode(decoded.message_id, decoded.message) == packet


@pytest.mark.parametrize("packet", GOOD, ids=identify)
def test_decoded_byte_by_byte(packet: bytes) -> None:
    decoder = Decoder(LIMIT_PEER)
    for i in range(len(packet) - 1):
        decoder.feed(packet[i : i + 1])
        assert list(iter(decoder.take, None)) == []
    decoder.feed(packet[-1:])
    assert list(iter(decoder.take, None)) == decode(packet)


@pytest.mark.parametrize("packet", GOOD, ids=identify)
def test_decoded_with_trailing_data(packet: bytes) -> None:
    following = encode(7, Ping())
    assert decode(packet + following[:-1]) == decode(packet)
    assert decode(packet + following[:-1], following[-1:]) == [*decode(packet), (7, Ping())]


def test_the_whole_record_in_one_stream() -> None:
    """Specification 2.4."""
    stream = b"".join(GOOD)
    expected = [packet for one in GOOD for packet in decode(one)]
    assert decode(stream) == expected
    assert decode(*(stream[i : i + 97] for i in range(0, len(stream), 97))) == expected


@pytest.mark.parametrize(("name", "packet"), examples())
def test_an_example_is_the_message_or_its_answer(name: str, packet: bytes) -> None:
    (decoded,) = decode(packet)
    entry = next(entry for entry in GOLDEN["messages"] if entry["name"] == name)
    kind = type(decoded.message).__name__
    if CODES[type(decoded.message)] == entry["code"]:
        assert kind == name
    else:
        assert kind in {"Error", entry["answer"]}


@pytest.mark.parametrize("row", [row for row in CAPTURED if "error" not in row])
def test_captured_packets_have_their_names(row: dict[str, Any]) -> None:
    (decoded,) = decode(bytes.fromhex(row["hex"]))
    assert type(decoded.message).__name__ == row["name"]


@pytest.mark.parametrize("row", [row for row in CAPTURED if "note" in row])
def test_texts_as_str_are_accepted_and_sent_as_bin(row: dict[str, Any]) -> None:
    """Specification 2.6."""
    packet = bytes.fromhex(row["hex"])
    (decoded,) = decode(packet)
    ours = encode(decoded.message_id, decoded.message)
    assert ours != packet
    assert decode(ours) == [decoded]


@pytest.mark.parametrize("row", [row for row in CAPTURED if "error" in row])
def test_malformed_packets_of_the_record_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(PeerError) as caught:
        decode(bytes.fromhex(row["hex"]))
    assert str(caught.value) == row["error"]
