"""Ids, their namespaces, and the times in tids."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from persistent.timestamp import TimeStamp

from neo.protocol import ids
from neo.protocol.enums import EXTENSION_TYPES, CellState, ErrorCode, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import (
    MAX_TID,
    ZERO_TID,
    add64,
    format_nid,
    format_xid,
    nid_namespace,
    parse_nid,
    parse_tid,
    parse_xid,
    partition_of,
    tid_from_time,
    time_from_tid,
    u64,
)

MILLENNIUM = 946684800.0


def test_partition_is_the_rest_of_the_division() -> None:
    """Specification 15.4."""
    assert [partition_of(bytes([0] * 7 + [i]), 3) for i in range(6)] == [0, 1, 2, 0, 1, 2]
    assert partition_of(b"\xff" * 8, 12) == (2**64 - 1) % 12


def test_ids_with_a_meaning() -> None:
    """Specification 15.1, 15.3."""
    assert bytes(8) == ids.ZERO_TID == ids.ZERO_OID
    assert b"\xff" * 8 == ids.INVALID_TID == ids.INVALID_OID
    assert b"\x7f\xff\xff\xff\xff\xff\xff\xff" == ids.MAX_TID
    assert bytes(20) == ids.ZERO_HASH
    assert ids.INVALID_PARTITION == 0xFFFFFFFF


def test_add64_stays_in_64_bits() -> None:
    assert add64(ZERO_TID, 1) == b"\0" * 7 + b"\1"
    assert add64(b"\0" * 7 + b"\1", -1) == ZERO_TID
    with pytest.raises(OverflowError):
        add64(b"\xff" * 8, 1)
    with pytest.raises(OverflowError):
        add64(ZERO_TID, -1)


@pytest.mark.parametrize(
    ("nid", "text"),
    [
        (1, "S1"),
        (300, "S300"),
        (2**31 - 1, "S2147483647"),
        ((-0x10 << 24) + 1, "M1"),
        ((-0x20 << 24) + 1, "C1"),
        ((-0x30 << 24) + 1, "A1"),
    ],
)
def test_node_names(nid: int, text: str) -> None:
    """Specification 15.12, 15.13."""
    assert format_nid(nid) == text
    assert parse_nid(text) == nid
    assert parse_nid(text.lower()) == nid


@given(st.sampled_from(NodeType), st.integers(1, 2**24 - 1))
def test_every_id_of_a_namespace_has_a_name_that_is_read_back(kind: NodeType, n: int) -> None:
    nid = nid_namespace(kind) + n
    assert format_nid(nid) == f"{kind.name[0]}{n}"
    assert parse_nid(format_nid(nid)) == nid


@pytest.mark.parametrize(
    "text",
    [
        *("", "S", "1", "X1", "S-1", "S1.5", "all", "S²", "S١", "S0", "M0", "S2147483648"),
        *("M16777216", "C536870913", "M268435457", "S" + "1" * 5000),
    ],
)
def test_what_is_no_node_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a node: write S1, M1, C1 or A1"):
        parse_nid(text)


def test_no_id() -> None:
    """Specification 15.13."""
    assert format_nid(None) == "?"
    assert format_nid(-0x7FFFFFFF) == "?-2147483647"


@pytest.mark.parametrize(
    ("text", "tid"),
    [
        ("0", ZERO_TID),
        ("0x10", b"\0" * 7 + b"\x10"),
        ("9223372036854775807", MAX_TID),
        ("0xffffffffffffffff", b"\xff" * 8),
        ("1700000000.0", tid_from_time(1700000000.0)),
    ],
)
def test_tids_of_operators(text: str, tid: bytes) -> None:
    """Specification 15.17."""
    assert parse_tid(text) == tid


@pytest.mark.parametrize("text", ["", "tid", "-1", "0x10000000000000000", "1.2.3", "5e3"])
def test_what_is_no_tid(text: str) -> None:
    with pytest.raises(ValueError):
        parse_tid(text)


@given(st.floats(MILLENNIUM, 4102444800.0))
@example(MILLENNIUM + 0.9999999)
@example(MILLENNIUM + 59.9999999)
def test_a_tid_is_the_timestamp_of_every_zodb_storage(seconds: float) -> None:
    """Specification 15.2."""
    tid = tid_from_time(seconds)
    assert abs(TimeStamp(tid).timeTime() - seconds) < 1e-5
    assert abs(time_from_tid(tid) - seconds) < 1e-5


@given(st.floats(MILLENNIUM, 4102444800.0), st.floats(MILLENNIUM, 4102444800.0))
def test_tids_are_ordered_like_their_times(one: float, other: float) -> None:
    early, late = sorted([one, other])
    assert u64(tid_from_time(early)) <= u64(tid_from_time(late))


def test_the_first_tid_is_the_beginning_of_1900() -> None:
    """Specification 15.2."""
    assert time_from_tid(ZERO_TID) == -2208988800.0


def test_states_of_cells() -> None:
    assert [s.name for s in CellState if s.readable] == ["UP_TO_DATE", "FEEDING"]
    assert [s.name for s in CellState if s.writable] == ["OUT_OF_DATE", "UP_TO_DATE", "FEEDING"]


def test_items_are_not_numbers() -> None:
    for enum in EXTENSION_TYPES:
        assert all(item != item.value for item in enum)


def test_error_answers() -> None:
    error = ErrorAnswer.of(1, "no")
    assert (error.code, str(error)) == (ErrorCode.DENIED, "DENIED: no")
    assert str(ErrorAnswer(ErrorCode.NOT_READY)) == "NOT_READY"
    unknown = ErrorAnswer.of(99, "strange")
    assert unknown.code is ErrorCode.PROTOCOL_ERROR
    assert unknown.message == "unknown error code 99: strange"


@pytest.mark.parametrize(
    ("xid", "text"),
    [
        (b"neo-0a1b", "neo-0a1b"),
        (b"two words", "0x74776f20776f726473"),
        (b"it's", "0x69742773"),
        (b"0x12", "0x30783132"),
        (b"\x00\xff", "0x00ff"),
    ],
)
def test_xids_are_read_as_they_are_written(xid: bytes, text: str) -> None:
    assert format_xid(xid) == text
    assert parse_xid(text) == xid


@given(st.binary(min_size=1, max_size=140))
def test_any_xid_can_be_typed_as_one_word(xid: bytes) -> None:
    text = format_xid(xid)
    assert parse_xid(text) == xid
    assert " " not in text
    assert shlex.split(text) == [text]


@pytest.mark.parametrize("text", ["", "0x", "0x1", "0xzz", "ä", "x" * 141])
def test_what_is_no_xid_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="an xid has|is not an xid"):
        parse_xid(text)
