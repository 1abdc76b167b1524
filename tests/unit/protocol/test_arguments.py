"""The types of the arguments of messages."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from neo.protocol.codec import encode
from neo.protocol.enums import CellState, NodeType
from neo.protocol.packets import (
    CODES,
    AnswerMonitorInformation,
    AnswerRevisions,
    CheckReplicas,
    Error,
    NotifyMonitorInformation,
    RequestIdentification,
)
from tests.unit.protocol.packed import OID, decode, packed, refusal


@pytest.mark.parametrize(
    ("oid", "problem"),
    [
        (None, "expected bytes, got None"),
        (b"1234567", "expected bytes of length >= 8, got b'1234567'"),
        (bytes(9), "expected bytes of length <= 8"),
        (0, "expected bytes, got 0"),
        ([OID], "expected bytes, got an array of 1"),
        ({b"a": 1}, "expected bytes, got a map of 1"),
        (
            b"x" * 1000,
            "expected bytes of length <= 8, got b'xxxxxxxxxxxxxxxxxxxxxxxx'... (1000 bytes)",
        ),
    ],
)
def test_wrong_argument(oid: Any, problem: str) -> None:
    """Specification 2.10."""
    assert refusal(packed(0, 32, [oid, None, None])).startswith(
        f"AskObject: wrong argument: oid: {problem}"
    )


ANSWER_REVISIONS = CODES[AnswerRevisions]
_ROW: list[Any] = [OID, OID, 1, bytes(20), 5, b"data!", None]


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        (0, None, "expected bytes, got None"),
        (0, b"", "expected bytes of length >= 8, got b''"),
        (1, 7, "expected bytes, got 7"),
        (2, True, "expected int | nil, got True"),
        (3, bytes(19), "expected bytes of length >= 20"),
        (4, None, "expected int, got None"),
        (5, 5, "expected bytes | nil, got 5"),
        (6, b"", "expected bytes of length >= 8, got b''"),
        (6, bytes(9), "expected bytes of length <= 8"),
    ],
)
def test_wrong_values_in_rows(position: int, column: int, value: object, problem: str) -> None:
    """Specification 2.10."""
    rows = [[*_ROW], [*_ROW[:6], OID], [OID, OID, None, bytes(20), 0, None, None]]
    assert len(decode(packed(0, ANSWER_REVISIONS, [rows, True]))) == 1
    rows[position][column] = value
    text = refusal(packed(0, ANSWER_REVISIONS, [rows, True]))
    place = f"revision_list[{position}][{column}]"
    assert text.startswith(f"AnswerRevisions: wrong argument: {place}: {problem}")


@pytest.mark.parametrize("row", [5, b"row", None, {}, [], _ROW[:6], [*_ROW, None]])
def test_rows_that_are_none(row: object) -> None:
    """Specification 2.7."""
    text = refusal(packed(0, ANSWER_REVISIONS, [[_ROW, row], True]))
    assert "AnswerRevisions: wrong argument: revision_list[1]: expected array" in text


@pytest.mark.parametrize(
    ("code", "arguments", "problem"),
    [
        *(
            (24, [number], "AskNewOIDs: wrong argument: num_oids: expected int")
            for number in (True, 1.0, b"1", None, msgpack.ExtType(4, b"\x01"))
        ),
        (12, [1], "StartOperation: wrong argument: backup: expected bool, got 1"),
        # A state of another enumeration, and a number instead of a state.
        (42, [msgpack.ExtType(0, b"\x01")], "SetClusterState: wrong argument: state: ClusterState exp"),
        (42, [1], "SetClusterState: wrong argument: state: ClusterState expected"),
        (42, [msgpack.ExtType(4, bytes(100))], "malformed message"),
        (68, [{b"when": msgpack.Timestamp(1, 0)}], "NotifyMonitorInformation: wrong argument"),
        (
            50,
            [{b"0": None}, bytes(8), None],
            "CheckReplicas: wrong argument: partition_dict: expected int, got a map of 1",
        ),
    ],
    ids=repr,
)
def test_values_of_another_type(code: int, arguments: list[Any], problem: str) -> None:
    """Specification 2.8, 2.10, 2.12."""
    assert refusal(packed(0, code, arguments)).startswith(problem)


@pytest.mark.parametrize(
    ("number", "data"),
    [(0, b"\5"), (1, b"\7"), (4, b"\4"), (5, b"\0"), (127, b"\0"), (4, b""), (4, b"\1\1")],
)
def test_unknown_enumeration_item(number: int, data: bytes) -> None:
    """Specification 2.8."""
    text = refusal(packed(0, 42, [msgpack.ExtType(number, data)]))
    assert text == f"unknown enumeration item: extension type {number}, data {data.hex()}"


@pytest.mark.parametrize("number", [-2, -4, -128])
def test_a_negative_extension_type_counts_from_no_end(number: int) -> None:
    data = b"\x93\x00\x2a\x91\xd4" + number.to_bytes(1, "big", signed=True) + b"\x00"
    assert refusal(data) == f"unknown enumeration item: extension type {number}, data 00"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x93\x00\x44\x91\x81\xc4\x01a\xd4\xff\x00", id="a broken timestamp"),
        pytest.param(b"\x93\x00\x32\x93\x81\x90\xc0\xc4\x00\xc0", id="an array as a key"),
        pytest.param(b"\x93\x00\x44\x91\x81\x80\x01", id="a map as a key"),
        pytest.param(b"\xc1", id="the byte that no format uses"),
        pytest.param(b"\x93\x00\xc1", id="the byte that no format uses, as a code"),
    ],
)
def test_what_is_no_message_pack_is_malformed(data: bytes) -> None:
    assert "malformed message" in refusal(data)


def test_whole_seconds_may_travel_as_an_integer() -> None:
    """Specification 2.5."""
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
    """Specification 2.8, 2.12."""
    message = NotifyMonitorInformation({"pt_summary": {CellState.UP_TO_DATE: 12}, "down": 0})
    assert decode(encode(3, message)) == [(3, message)]


def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    data = b"\x93\x00\x32\x93" + b"\x82\x00\x01\x00\x02" + b"\xc4\x08" + bytes(8) + b"\xc0"
    assert decode(data) == [(0, CheckReplicas({0: 2}, bytes(8), None))]
