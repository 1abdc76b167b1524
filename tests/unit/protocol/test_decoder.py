"""What is a packet, what is not, and how much of it is kept."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from neo.protocol.codec import (
    LIMIT_GUEST,
    LIMIT_PEER,
    LIMIT_STRANGER,
    Decoder,
    check_lengths,
    encode,
)
from neo.protocol.enums import ClusterState
from neo.protocol.errors import PeerError
from neo.protocol.packets import (
    AskFinishTransaction,
    AskObject,
    AskStoreObject,
    Error,
    Message,
    Ping,
    SetClusterState,
)
from tests.unit.protocol.packed import OID, decode, packed, refusal

# -- shape of a packet ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"\x00", b"\xc0", b"\xc4\x01a", b"\x80", packed(), packed(0, 1), packed(0, 2, [], 4)],
    ids=repr,
)
def test_not_a_packet(data: bytes) -> None:
    """Specification 2.4."""
    assert "not a NEO packet (an array of 3 is expected)" in refusal(data)


@pytest.mark.parametrize("packet", [(0, "2", []), (0, 2, {}), (0, None, None), (0, True, [])])
def test_wrong_types_in_a_packet(packet: Any) -> None:
    assert "not a NEO packet (id, code, arguments)" in refusal(packed(*packet))


@pytest.mark.parametrize("code", [70, 0x3FFF, 0x8046, -1, 2**64 - 1, 0])
def test_unknown_code(code: int) -> None:
    """Specification 2.14, 2.24."""
    assert refusal(packed(0, code, [])) == f"unknown message code {code:#x}"


@pytest.mark.parametrize("code", [19, 38, 39, 41, 42, 43, 50, 65])
def test_requests_answered_by_error_have_no_answer_code(code: int) -> None:
    """Specification 2.15."""
    assert "unknown message code" in refusal(packed(0, 0x8000 | code, []))


@pytest.mark.parametrize("message_id", [None, "0", 1.0, True, [0]])
def test_message_id_is_a_number(message_id: Any) -> None:
    """Specification 2.23."""
    assert refusal(packed(message_id, 2, [])).startswith("Ping: message id is ")


def test_error_alone_may_answer_no_message() -> None:
    """Specification 2.23."""
    assert decode(packed(None, 0x8000, [6, b"why"])) == [(None, Error(6, "why"))]


def test_any_message_id_of_the_peer_is_fine() -> None:
    assert decode(packed(2**40, 2, [])) == [(2**40, Ping())]


@pytest.mark.parametrize("arguments", [[], [OID, None], [OID, None, None, None]])
def test_number_of_arguments(arguments: list[Any]) -> None:
    """Specification 2.11."""
    assert refusal(packed(0, 32, arguments)) == (
        f"AskObject: 3 arguments expected, got {len(arguments)}"
    )


# -- bounds --------------------------------------------------------------------------------------


def test_a_gigabyte_announced_is_refused_at_once() -> None:
    """Specification 2.34, 2.36."""
    header = b"\x93\x05\x1c\x97" + b"\xc4\x08" + bytes(8) + b"\xc6\x40\x00\x00\x00"
    assert refusal(header) == (
        f"message of more than {LIMIT_PEER} bytes: {2**30} bytes are announced"
    )


@pytest.mark.parametrize("header", [b"\xc6", b"\xdb", b"\xc9"], ids=["bin", "str", "ext"])
def test_any_body_above_the_limit_is_refused_when_announced(header: bytes) -> None:
    data = b"\x93\x00\x1c\x97" + header + (LIMIT_STRANGER + 1).to_bytes(4, "big")
    assert "65537 bytes are announced" in refusal(data, LIMIT_STRANGER)
    assert decode(data) == []


def test_an_announcement_cut_anywhere_is_refused_when_it_is_whole() -> None:
    header = b"\x93\x05\x1c\x97" + b"\xc4\x08" + bytes(8) + b"\xc6\x40\x00\x00\x00"
    decoder = Decoder(LIMIT_PEER)
    for i in range(len(header) - 1):
        decoder.feed(header[i : i + 1])
        assert list(iter(decoder.take, None)) == []
    decoder.feed(header[-1:])
    with pytest.raises(PeerError):
        list(iter(decoder.take, None))


def test_an_announcement_behind_whole_messages() -> None:
    decoder = Decoder(LIMIT_PEER)
    decoder.feed(encode(0, Ping()) * 3 + b"\x93\x05\x1c\x97\xc6\x40\x00\x00\x00")
    assert [decoder.take() for _ in range(3)] == [(0, Ping())] * 3
    with pytest.raises(PeerError):
        decoder.take()


def test_data_that_looks_like_an_announcement_is_data() -> None:
    data = b"\xc6\xff\xff\xff\xff" * 1000
    message = AskStoreObject(OID, OID, 0, bytes(20), data, None, OID)
    packet = encode(0, message)
    decoder = Decoder(LIMIT_PEER)
    decoder.feed(packet[:100])
    assert list(iter(decoder.take, None)) == []
    decoder.feed(packet[100:])
    assert list(iter(decoder.take, None)) == [(0, message)]


@pytest.mark.parametrize(
    "item",
    [b"\xc0", b"\x7f", b"\xcc\1", b"\xcd\1\1", b"\xce" + bytes(4), b"\xcf" + bytes(8), b"\xd0\1",
     b"\xd1\1\1", b"\xd2" + bytes(4), b"\xd3" + bytes(8), b"\xca" + bytes(4), b"\xcb" + bytes(8),
     b"\xd4\1\1", b"\xd5\1" + bytes(2), b"\xd6\1" + bytes(4), b"\xd7\1" + bytes(8),
     b"\xd8\1" + bytes(16), b"\xc7\1\1\1", b"\xc8\0\1\1\1", b"\xc9\0\0\0\1\1\1", b"\xc4\1a",
     b"\xc5\0\1a", b"\xc6\0\0\0\1a", b"\xd9\1a", b"\xda\0\1a", b"\xdb\0\0\0\1a", b"\xa3abc",
     b"\xe0", b"\x91", b"\x81", b"\xdc\0\1", b"\xdd\0\0\0\1", b"\xde\0\1", b"\xdf\0\0\0\1"],
    ids=bytes.hex,
)  # fmt: skip
def test_lengths_are_found_behind_every_kind_of_item(item: bytes) -> None:
    check_lengths(item + b"\xc6\x00\x00\x00\x10", 16)
    with pytest.raises(PeerError):
        check_lengths(item + b"\xc6\x00\x00\x00\x11", 16)


@pytest.mark.parametrize("header", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"])
def test_array_and_map_bombs(header: bytes) -> None:
    """Specification 2.36."""
    assert "malformed message" in refusal(b"\x93\x00\x1c" + header)


@pytest.mark.parametrize("header", [b"\xdc\xff\xff", b"\xde\xff\xff"])
def test_a_stranger_has_no_long_lists(header: bytes) -> None:
    """Specification 2.36."""
    assert "malformed message" in refusal(b"\x93\x00\x01" + header, LIMIT_STRANGER)
    assert decode(b"\x93\x00\x14" + header) == []


def test_many_small_items_count_as_well_as_one_big_body() -> None:
    decoder = Decoder(LIMIT_STRANGER)
    decoder.feed(b"\x93\x00\x01" + b"\xdc\x1f\xff" * 10)
    with pytest.raises(PeerError, match="message of more than 65536 bytes"):
        for _ in range(10):
            assert list(iter(decoder.take, None)) == []
            decoder.feed(b"\x90" * 8000)


def test_bytes_of_whole_messages_do_not_count() -> None:
    decoder = Decoder(LIMIT_STRANGER)
    ping = encode(1, Ping())
    for _ in range(20):
        decoder.feed(ping * 1000 + ping[:2])
        list(iter(decoder.take, None))
        decoder.feed(ping[2:])
        assert len(list(iter(decoder.take, None))) == 1


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\x00", b"\xdc\x00\x01"])
def test_deep_nesting(opening: bytes) -> None:
    for depth in (100, 1000, 100_000):
        whole = opening * depth + b"\xc0"
        with pytest.raises(PeerError):
            decode(whole)
        with pytest.raises(PeerError):
            decode(b"\x93\x00\x44\x91" + whole)
    free_form = b"\x93\x00\x44\x91\x81\xc4\x01a"
    assert len(decode(free_form + opening * 100 + b"\xc0")) == 1
    with pytest.raises(PeerError):
        decode(free_form + opening * 100_000)


def test_nested_bombs_reserve_no_memory() -> None:
    """A hundred arrays of 8,191 items, none of which ever comes."""
    before = sys.getallocatedblocks()
    decoder = Decoder(LIMIT_STRANGER)
    decoder.feed(b"\x93\x00\x01" + b"\xdc\x1f\xff" * 100)
    assert list(iter(decoder.take, None)) == []
    assert sys.getallocatedblocks() - before < 10_000


# -- limits that change --------------------------------------------------------------------------


LONG = encode(9, AskFinishTransaction(OID, [OID] * 10_000, []))


def test_a_longer_message_after_raising_the_limit() -> None:
    with pytest.raises(PeerError):
        decode(LONG, LIMIT_STRANGER)
    decoder = Decoder(LIMIT_STRANGER)
    decoder.raise_limit(LIMIT_PEER)
    decoder.feed(LONG)
    assert len(list(iter(decoder.take, None))) == 1


def test_messages_that_wait_survive_a_change_of_the_limit() -> None:
    decoder = Decoder(LIMIT_STRANGER)
    decoder.feed(encode(0, Ping()) + encode(1, Ping()) + LONG[:100])
    assert decoder.take() == (0, Ping())
    decoder.raise_limit(LIMIT_PEER)
    assert list(iter(decoder.take, None)) == [(1, Ping())]
    decoder.feed(LONG[100:])
    (packet,) = iter(decoder.take, None)
    assert packet.message_id == 9


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 20, 40, 1000, 30000])
def test_a_message_half_received_survives_a_change_of_the_limit(cut: int) -> None:
    message = AskStoreObject(OID, OID, 0, bytes(20), b"x" * 60000, None, OID)
    packet = encode(4, message)
    decoder = Decoder(LIMIT_STRANGER)
    decoder.feed(encode(0, AskObject(OID, None, None)))
    assert len(list(iter(decoder.take, None))) == 1
    for start in range(0, cut, 1000):
        decoder.feed(packet[start : min(cut, start + 1000)])
        assert list(iter(decoder.take, None)) == []
    decoder.raise_limit(LIMIT_PEER)
    decoder.feed(packet[cut:])
    assert list(iter(decoder.take, None)) == [(4, message)]


@pytest.mark.parametrize("cut", [LIMIT_STRANGER - 1, LIMIT_STRANGER, LIMIT_STRANGER + 1, 100_000])
def test_the_limit_is_raised_in_the_middle_of_a_longer_message(cut: int) -> None:
    """It holds for that message if its beginning is short, and from the next one on if it is long."""
    first, second = bytes(150_000), bytes(LIMIT_GUEST)
    packets = b"".join(
        encode(4, AskStoreObject(OID, OID, 0, bytes(20), data, None, OID))
        for data in (first, second)
    )
    decoder = Decoder(LIMIT_GUEST)
    decoder.feed(packets[:cut])
    assert list(iter(decoder.take, None)) == []
    decoder.raise_limit(LIMIT_PEER)
    decoder.feed(packets[cut:200_000])
    assert [getattr(packet.message, "data", None) for packet in iter(decoder.take, None)] == [first]
    decoder.feed(packets[200_000:] + encode(7, Ping()))
    assert [type(packet.message) for packet in iter(decoder.take, None)] == [AskStoreObject, Ping]
    assert decoder.incomplete == 0


# -- encoding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message_id", "message", "packet"),
    [
        # Integers have their smallest form, and states are extensions of one byte.
        (0, Ping(), b"\x93\x00\x02\x90"),
        (0x1234, Ping(), b"\x93\xcd\x12\x34\x02\x90"),
        (0xFFFFFFFF, Ping(), b"\x93\xce\xff\xff\xff\xff\x02\x90"),
        (0, SetClusterState(ClusterState.STOPPING), b"\x93\x00\x2a\x91\xd4\x01\x03"),
    ],
)
def test_bytes_of_packets(message_id: int, message: Message, packet: bytes) -> None:
    """Specification 2.5, 2.8."""
    assert encode(message_id, message) == packet


def test_what_cannot_travel_is_our_mistake_and_leaves_nothing_behind() -> None:
    with pytest.raises(TypeError, match="cannot travel in a message"):
        encode(0, AskObject(OID, None, object()))  # type: ignore[arg-type]
    assert encode(0, Ping()) == b"\x93\x00\x02\x90"
