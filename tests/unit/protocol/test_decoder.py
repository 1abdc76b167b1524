"""What the decoder accepts and refuses, and what it costs: specification, *Messages*; FACTS 1."""

from __future__ import annotations

import sys
from typing import Any

import msgpack
import pytest

from neo.protocol.codec import LIMIT_PEER, LIMIT_STRANGER, Decoder, Packet, encode
from neo.protocol.enums import CellState, ClusterState, NodeType
from neo.protocol.errors import PeerError
from neo.protocol.lengths import check_lengths
from neo.protocol.packets import (
    CODES,
    AnswerMonitorInformation,
    AnswerRevisions,
    AskFinishTransaction,
    AskObject,
    AskStoreObject,
    CheckReplicas,
    Error,
    NotifyMonitorInformation,
    Ping,
    RequestIdentification,
    SetClusterState,
)

OID = bytes(8)


def decode(data: bytes, limit: int = LIMIT_PEER) -> list[Packet]:
    decoder = Decoder(limit)
    decoder.feed(data)
    return list(decoder)


def refusal(data: bytes, limit: int = LIMIT_PEER) -> str:
    with pytest.raises(PeerError) as caught:
        decode(data, limit)
    return str(caught.value)


def packed(*packet: Any) -> bytes:
    data: bytes = msgpack.packb(packet, use_bin_type=True)
    return data


# -- shape of a packet -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"\x00", b"\xc0", b"\xc4\x01a", b"\x80", packed(), packed(0, 1), packed(0, 2, [], 4)],
    ids=repr,
)
def test_not_a_packet(data: bytes) -> None:
    assert "not a NEO packet (an array of 3 is expected)" in refusal(data)


@pytest.mark.parametrize("packet", [(0, "2", []), (0, 2, {}), (0, None, None), (0, True, [])])
def test_wrong_types_in_a_packet(packet: Any) -> None:
    assert "not a NEO packet (id, code, arguments)" in refusal(packed(*packet))


@pytest.mark.parametrize("code", [70, 0x3FFF, 0x8046, -1, 2**64 - 1, 0])
def test_unknown_code(code: int) -> None:
    assert refusal(packed(0, code, [])) == f"unknown message code {code:#x}"


@pytest.mark.parametrize("code", [19, 38, 39, 41, 42, 43, 50, 65])
def test_requests_answered_by_error_have_no_answer_code(code: int) -> None:
    assert "unknown message code" in refusal(packed(0, 0x8000 | code, []))


@pytest.mark.parametrize("message_id", [None, "0", 1.0, True, [0]])
def test_message_id_is_a_number(message_id: Any) -> None:
    assert refusal(packed(message_id, 2, [])).startswith("Ping: message id is ")


def test_error_alone_may_answer_no_message() -> None:
    assert decode(packed(None, 0x8000, [6, b"why"])) == [(None, Error(6, "why"))]


def test_any_message_id_of_the_peer_is_fine() -> None:
    assert decode(packed(2**40, 2, [])) == [(2**40, Ping())]


@pytest.mark.parametrize("arguments", [[], [OID, None], [OID, None, None, None]])
def test_number_of_arguments(arguments: list[Any]) -> None:
    assert refusal(packed(0, 32, arguments)) == (
        f"AskObject: 3 arguments expected, got {len(arguments)}"
    )


# -- types of arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("oid", "problem"),
    [
        (None, "8 bytes expected, got None"),
        (b"1234567", "8 bytes expected, got b'1234567'"),
        (bytes(9), "8 bytes expected"),
        (0, "8 bytes expected, got 0"),
        ([OID], "8 bytes expected, got an array of 1"),
        ({b"a": 1}, "8 bytes expected, got a map of 1"),
        (b"x" * 1000, "8 bytes expected, got b'xxxxxxxxxxxxxxxxxxxxxxxx'... (1000 bytes)"),
    ],
)
def test_wrong_argument(oid: Any, problem: str) -> None:
    assert refusal(packed(0, 32, [oid, None, None])).startswith(
        f"AskObject: wrong argument: {problem}"
    )


ANSWER_REVISIONS = CODES[AnswerRevisions]
_ROW: list[Any] = [OID, OID, 1, bytes(20), 5, b"data!", None]


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        (0, None, "8 bytes expected, got None"),
        (0, b"", "8 bytes expected, got b''"),
        (1, 7, "8 bytes expected, got 7"),
        (2, True, "int expected, got True"),
        (3, bytes(19), "20 bytes expected"),
        (4, None, "int expected, got None"),
        (5, 5, "bytes expected, got 5"),
        (6, b"", "8 bytes expected, got b''"),
        (6, bytes(9), "8 bytes expected"),
    ],
)
def test_wrong_values_in_rows(position: int, column: int, value: object, problem: str) -> None:
    rows = [[*_ROW], [*_ROW[:6], OID], [OID, OID, None, bytes(20), 0, None, None]]
    assert len(decode(packed(0, ANSWER_REVISIONS, [rows, True]))) == 1
    rows[position][column] = value
    text = refusal(packed(0, ANSWER_REVISIONS, [rows, True]))
    assert text.startswith(f"AnswerRevisions: wrong argument: {problem}")


@pytest.mark.parametrize("row", [5, b"row", None, {}, [], _ROW[:6], [*_ROW, None]])
def test_rows_that_are_none(row: object) -> None:
    text = refusal(packed(0, ANSWER_REVISIONS, [[_ROW, row], True]))
    assert "array of 7 expected" in text


@pytest.mark.parametrize("number", [True, 1.0, b"1", None, msgpack.ExtType(4, b"\x01")])
def test_an_integer_is_nothing_else(number: Any) -> None:
    assert refusal(packed(0, 24, [number])).startswith("AskNewOIDs: wrong argument: int expected")


def test_a_boolean_is_not_an_integer() -> None:
    assert refusal(packed(0, 12, [1])).startswith(
        "StartOperation: wrong argument: bool expected, got 1"
    )


def test_a_state_of_another_enumeration() -> None:
    assert "ClusterState expected" in refusal(packed(0, 42, [msgpack.ExtType(0, b"\x01")]))
    assert "ClusterState expected" in refusal(packed(0, 42, [1]))


@pytest.mark.parametrize(
    ("number", "data"),
    [(0, b"\5"), (1, b"\7"), (4, b"\4"), (5, b"\0"), (127, b"\0"), (4, b""), (4, b"\1\1")],
)
def test_unknown_enumeration_item(number: int, data: bytes) -> None:
    text = refusal(packed(0, 42, [msgpack.ExtType(number, data)]))
    assert text == f"unknown enumeration item: extension type {number}, data {data.hex()}"


@pytest.mark.parametrize("number", [-2, -4, -128])
def test_a_negative_extension_type_counts_from_no_end(number: int) -> None:
    data = b"\x93\x00\x2a\x91\xd4" + number.to_bytes(1, "big", signed=True) + b"\x00"
    assert refusal(data) == f"unknown enumeration item: extension type {number}, data 00"


def test_long_extension() -> None:
    assert "malformed message" in refusal(packed(0, 42, [msgpack.ExtType(4, bytes(100))]))


def test_a_timestamp_extension_is_not_a_value_of_ours() -> None:
    data = packed(0, 68, [{b"when": msgpack.Timestamp(1, 0)}])
    assert "NotifyMonitorInformation: wrong argument" in refusal(data)


def test_a_broken_timestamp_extension() -> None:
    data = b"\x93\x00\x44\x91\x81\xc4\x01a\xd4\xff\x00"
    with pytest.raises(PeerError):
        decode(data)


def test_whole_seconds_may_travel_as_an_integer() -> None:
    request = [msgpack.ExtType(4, b"\x02"), None, None, b"c", 1700000000, {}]
    ((_, message),) = decode(packed(0, 1, request))
    assert type(message.id_timestamp) is float


def test_text_that_is_not_utf8_stays_readable() -> None:
    assert decode(packed(0, 0x8000, [1, b"caf\xe9"])) == [(0, Error(1, "caf\\xe9"))]


def test_texts_are_text_and_user_data_is_bytes() -> None:
    extra = {"devpath": ["host", "1"], "new_nid": []}
    request = RequestIdentification(NodeType.STORAGE, 1, ("::1", 5), "café", None, extra)
    assert decode(encode(0, request)) == [(0, request)]
    answer = AnswerMonitorInformation([None, "backup"], [], "summary")
    assert decode(encode(0, answer)) == [(0, answer)]


def test_states_as_keys_of_a_free_map() -> None:
    message = NotifyMonitorInformation({"pt_summary": {CellState.UP_TO_DATE: 12}, "down": 0})
    assert decode(encode(3, message)) == [(3, message)]


def test_unhashable_map_key() -> None:
    assert "malformed message" in refusal(b"\x93\x00\x32\x93\x81\x90\xc0\xc4\x00\xc0")
    assert "malformed message" in refusal(b"\x93\x00\x44\x91\x81\x80\x01")


def test_keys_are_checked_too() -> None:
    assert refusal(packed(0, 50, [{b"0": None}, bytes(8), None])).startswith(
        "CheckReplicas: wrong argument: int expected"
    )


def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    data = b"\x93\x00\x32\x93" + b"\x82\x00\x01\x00\x02" + b"\xc4\x08" + bytes(8) + b"\xc0"
    assert decode(data) == [(0, CheckReplicas({0: 2}, bytes(8), None))]


def test_the_byte_that_no_format_uses() -> None:
    assert "malformed message" in refusal(b"\xc1")
    assert "malformed message" in refusal(b"\x93\x00\xc1")


# -- bounds ----------------------------------------------------------------------------------------


def test_a_gigabyte_announced_is_refused_at_once() -> None:
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
        assert list(decoder) == []
    decoder.feed(header[-1:])
    with pytest.raises(PeerError):
        list(decoder)


def test_an_announcement_behind_whole_messages() -> None:
    decoder = Decoder(LIMIT_PEER)
    decoder.feed(encode(0, Ping()) * 3 + b"\x93\x05\x1c\x97\xc6\x40\x00\x00\x00")
    assert [next(decoder).message for _ in range(3)] == [Ping()] * 3
    with pytest.raises(PeerError):
        next(decoder)


def test_data_that_looks_like_an_announcement_is_data() -> None:
    data = b"\xc6\xff\xff\xff\xff" * 1000
    message = AskStoreObject(OID, OID, 0, bytes(20), data, None, OID)
    packet = encode(0, message)
    decoder = Decoder(LIMIT_PEER)
    decoder.feed(packet[:100])
    assert list(decoder) == []
    decoder.feed(packet[100:])
    assert list(decoder) == [(0, message)]


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
    assert "malformed message" in refusal(b"\x93\x00\x1c" + header)


@pytest.mark.parametrize("header", [b"\xdc\xff\xff", b"\xde\xff\xff"])
def test_a_stranger_has_no_long_lists(header: bytes) -> None:
    assert "malformed message" in refusal(b"\x93\x00\x01" + header, LIMIT_STRANGER)
    assert decode(b"\x93\x00\x14" + header) == []


def test_many_small_items_count_as_well_as_one_big_body() -> None:
    decoder = Decoder(LIMIT_STRANGER)
    decoder.feed(b"\x93\x00\x01" + b"\xdc\x1f\xff" * 10)
    with pytest.raises(PeerError, match="message of more than 65536 bytes"):
        for _ in range(10):
            assert list(decoder) == []
            decoder.feed(b"\x90" * 8000)


def test_bytes_of_whole_messages_do_not_count() -> None:
    decoder = Decoder(LIMIT_STRANGER)
    ping = encode(1, Ping())
    for _ in range(20):
        decoder.feed(ping * 1000 + ping[:2])
        list(decoder)
        decoder.feed(ping[2:])
        assert len(list(decoder)) == 1


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
    assert list(decoder) == []
    assert sys.getallocatedblocks() - before < 10_000


# -- limits that change ----------------------------------------------------------------------------

LONG = encode(9, AskFinishTransaction(OID, [OID] * 10_000, []))


def test_a_longer_message_after_raising_the_limit() -> None:
    with pytest.raises(PeerError):
        decode(LONG, LIMIT_STRANGER)
    decoder = Decoder(LIMIT_STRANGER)
    decoder.raise_limit(LIMIT_PEER)
    decoder.feed(LONG)
    assert len(list(decoder)) == 1


def test_messages_that_wait_survive_a_change_of_the_limit() -> None:
    decoder = Decoder(LIMIT_STRANGER)
    decoder.feed(encode(0, Ping()) + encode(1, Ping()) + LONG[:100])
    assert next(decoder) == (0, Ping())
    decoder.raise_limit(LIMIT_PEER)
    assert list(decoder) == [(1, Ping())]
    decoder.feed(LONG[100:])
    assert next(decoder).message_id == 9


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 20, 40, 1000, 30000])
def test_a_message_half_received_survives_a_change_of_the_limit(cut: int) -> None:
    message = AskStoreObject(OID, OID, 0, bytes(20), b"x" * 60000, None, OID)
    packet = encode(4, message)
    decoder = Decoder(LIMIT_STRANGER)
    decoder.feed(encode(0, AskObject(OID, None, None)))
    assert len(list(decoder)) == 1
    for start in range(0, cut, 1000):
        decoder.feed(packet[start : min(cut, start + 1000)])
        assert list(decoder) == []
    decoder.raise_limit(LIMIT_PEER)
    decoder.feed(packet[cut:])
    assert list(decoder) == [(4, message)]


# -- encoding --------------------------------------------------------------------------------------


def test_smallest_form_of_integers() -> None:
    assert encode(0, Ping()) == b"\x93\x00\x02\x90"
    assert encode(0x1234, Ping()) == b"\x93\xcd\x12\x34\x02\x90"
    assert encode(0xFFFFFFFF, Ping()) == b"\x93\xce\xff\xff\xff\xff\x02\x90"


def test_states_are_one_byte_extensions() -> None:
    assert encode(0, SetClusterState(ClusterState.STOPPING)) == b"\x93\x00\x2a\x91\xd4\x01\x03"


def test_what_cannot_travel_is_our_mistake_and_leaves_nothing_behind() -> None:
    with pytest.raises(TypeError, match="cannot travel in a message"):
        encode(0, AskObject(OID, None, object()))  # type: ignore[arg-type]
    assert encode(0, Ping()) == b"\x93\x00\x02\x90"
