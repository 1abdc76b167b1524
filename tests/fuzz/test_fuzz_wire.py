"""Any bytes give complete messages or PeerError, nothing else, within bounded memory."""

from __future__ import annotations

import tracemalloc

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neo.net.connection import HANDSHAKE, Connection
from neo.protocol import codec
from neo.protocol.codec import LIMIT_PEER, LIMIT_STRANGER, Decoder, encode
from neo.protocol.errors import HandshakeError, PeerError
from neo.protocol.packets import CODES, AskObject, Message, Ping
from tests.fuzz.messages import MESSAGES
from tests.wire.golden import good_packets

GOOD = good_packets()
CUTS = st.lists(st.integers(1, 60), max_size=8)
IDS = st.integers(0, 2**32 - 1)

#: MessagePack of any kind, most of which is no message.
PACKABLE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=40)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.binary(max_size=9), inner, max_size=3),
    max_leaves=20,
)  # fmt: skip


def portions(data: bytes, cuts: list[int]) -> list[bytes]:
    parts = []
    for cut in cuts:
        parts.append(data[:cut])
        data = data[cut:]
    return [*parts, data]


def survive(data: bytes, cuts: list[int], trusted: bool) -> int:
    """Decode bytes. Return the number of messages before the end or the refusal."""
    connection = Connection(server=True)
    assert list(connection.receive(HANDSHAKE)) == []
    if trusted:
        connection.trust()
    count = 0
    try:
        for portion in portions(data, cuts):
            for received in connection.receive(portion):
                assert type(received.message) in CODES
                assert type(received.message_id) is int
                count += 1
    except PeerError as e:
        assert not isinstance(e, HandshakeError)
        assert 0 < len(str(e)) < 1000
    return count


@given(st.binary(max_size=400), CUTS, st.booleans())
def test_random_bytes(data: bytes, cuts: list[int], trusted: bool) -> None:
    survive(data, cuts, trusted)


@given(st.binary(max_size=40), CUTS)
def test_random_beginnings(data: bytes, cuts: list[int]) -> None:
    connection = Connection(server=True)
    if HANDSHAKE.startswith(data[:6]) or data.startswith(HANDSHAKE):
        return
    with pytest.raises(HandshakeError):
        for portion in portions(data, cuts):
            list(connection.receive(portion))


@given(PACKABLE, CUTS, st.booleans())
def test_random_messagepack(value: object, cuts: list[int], trusted: bool) -> None:
    survive(msgpack.packb(value, use_bin_type=True), cuts, trusted)


@given(IDS, st.sampled_from(sorted(CODES.values())), st.lists(PACKABLE, max_size=7), CUTS)
def test_random_arguments(
    message_id: int, code: int, arguments: list[object], cuts: list[int]
) -> None:
    survive(msgpack.packb([message_id, code, arguments], use_bin_type=True), cuts, True)


@given(st.lists(st.tuples(IDS, MESSAGES), max_size=4), CUTS)
def test_random_messages_come_back_the_same(
    messages: list[tuple[int, Message]], cuts: list[int]
) -> None:
    decoder = Decoder(LIMIT_PEER)
    got = []
    for portion in portions(b"".join(encode(*message) for message in messages), cuts):
        decoder.feed(portion)
        got += list(iter(decoder.take, None))
    assert got == messages
    assert [type(packet.message) for packet in got] == [type(message) for _, message in messages]


@settings(max_examples=300)
@given(
    st.sampled_from(GOOD),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
    st.sampled_from(["replace", "insert", "delete", "truncate"]),
    CUTS,
    st.booleans(),
)
def test_mutated_golden_packets(
    packet: bytes, changes: list[tuple[int, int]], how: str, cuts: list[int], trusted: bool
) -> None:
    data = bytearray(packet)
    for position, byte in changes:
        position %= len(data) or 1
        if how == "replace" and data:
            data[position] = byte
        elif how == "insert":
            data.insert(position, byte)
        elif how == "delete":
            del data[position : position + 1]
        else:
            del data[position:]
    survive(bytes(data) + encode(1, Ping()), cuts, trusted)


#: MessagePack reads at most 1,024 nested arrays, each with as many items as a stranger may announce.
NESTED_BYTES = 1024 * 8 * codec.ITEMS_STRANGER
#: Python's objects: about 90 bytes for a list or a part of a dictionary, of which a byte of the longest
#: message announces one; and that message, a few times.
OBJECTS_BYTES = 160 * LIMIT_STRANGER
#: What the interpreter takes meanwhile: modules that are imported late, messages of errors.
OTHER_BYTES = 1 << 20


@settings(max_examples=30)
@given(
    st.lists(
        st.sampled_from(
            [b"\xdd\x00\xff\xff\xff", b"\xdf\x00\xff\xff\xff", b"\xdc\xff\xff", b"\xdc\x1f\xff", b"\x91",
             b"\x9f", b"\x81\x00", b"\xc6\x0f\xff\xff\xff", b"\x90", b"\xc0", b"\x93\x00\x20"]
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 400),
)  # fmt: skip
@example([b"\xdc\x1f\xff"] * 3, 400)
@example([b"\x93\x00\x14", b"\xdd\x00\xff\xff\xff"], 200)
def test_memory_for_what_a_stranger_announces_is_bounded(pieces: list[bytes], times: int) -> None:
    data = (b"".join(pieces) * times)[: LIMIT_STRANGER * 2]
    tracemalloc.start()
    try:
        survive(data, [], trusted=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < NESTED_BYTES + OBJECTS_BYTES + OTHER_BYTES


def test_the_fuzzer_notices_a_decoder_without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: without the table of types, wrong arguments reach the handlers."""
    wrong = msgpack.packb([0, 32, [None, b"short", {}]], use_bin_type=True)
    with pytest.raises(PeerError):
        list(iter(_fed(wrong).take, None))
    monkeypatch.setattr(codec, "convert", lambda arguments, cls: cls(*arguments))
    assert list(iter(_fed(wrong).take, None)) == [(0, AskObject(None, b"short", {}))]  # type: ignore[arg-type]


def test_the_fuzzer_notices_lengths_that_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: MessagePack alone waits for an announced gigabyte."""
    announced = b"\x93\x00\x1c\x97\xc6\x40\x00\x00\x00"
    with pytest.raises(PeerError):
        list(iter(_fed(announced).take, None))
    monkeypatch.setattr(codec, "check_lengths", lambda head, limit: None)
    assert list(iter(_fed(announced).take, None)) == []


def _fed(data: bytes) -> Decoder:
    decoder = Decoder(LIMIT_PEER)
    decoder.feed(data)
    return decoder
