"""The life of a connection, without IO (specification 2)."""

from __future__ import annotations

import pytest

from neo.net.connection import HANDSHAKE, Connection, Received
from neo.protocol.codec import LIMIT_PEER, LIMIT_STRANGER, encode
from neo.protocol.enums import NodeType
from neo.protocol.errors import HandshakeError, LastWords, PeerError
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerClusterState,
    AnswerNewOIDs,
    AskClusterState,
    AskFinishTransaction,
    AskNewOIDs,
    CloseClient,
    Error,
    FailedVote,
    FlushLog,
    NotifyReady,
    Ping,
    Pong,
    RequestIdentification,
    StopOperation,
)

OID = bytes(8)
LONG = AskFinishTransaction(OID, [OID] * 10_000, [])


def opened(server: bool = False) -> Connection:
    """A connection after the handshake."""
    connection = Connection(server)
    assert connection.take_outgoing() == HANDSHAKE
    assert list(connection.receive(HANDSHAKE)) == []
    return connection


def pair() -> tuple[Connection, Connection]:
    dialer, server = Connection(server=False), Connection(server=True)
    assert list(server.receive(dialer.take_outgoing())) == []
    assert list(dialer.receive(server.take_outgoing())) == []
    return dialer, server


def receive(connection: Connection, data: bytes) -> list[Received]:
    return list(connection.receive(data))


# -- handshake -------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [True, False])
def test_handshake_is_sent_before_anything_else(server: bool) -> None:
    """Specification 2.2."""
    connection = Connection(server)
    connection.send(FlushLog())
    assert connection.take_outgoing() == b"\x92\xa3NEO\x01" + b"\x93\x00\x42\x90"


def test_handshake_byte_by_byte() -> None:
    """Specification 2.3."""
    connection = Connection(server=True)
    for i in range(len(HANDSHAKE)):
        assert receive(connection, HANDSHAKE[i : i + 1]) == []
    assert receive(connection, encode(0, Ping())) == [(0, Ping(), None)]


@pytest.mark.parametrize("cut", range(12))
def test_messages_in_the_segment_of_the_handshake(cut: int) -> None:
    """Specification 2.3."""
    stream = HANDSHAKE + encode(0, Ping()) + encode(1, FlushLog())
    connection = Connection(server=True)
    got = receive(connection, stream[:cut]) + receive(connection, stream[cut:])
    assert [received.message for received in got] == [Ping(), FlushLog()]


def refusal(data: bytes) -> str:
    """The error of a stream; the same when it comes byte by byte, at the first wrong one."""
    with pytest.raises(HandshakeError) as whole:
        receive(Connection(server=True), data)
    connection = Connection(server=True)
    with pytest.raises(HandshakeError):
        for i in range(len(HANDSHAKE)):
            receive(connection, data[i : i + 1])
    return str(whole.value)


@pytest.mark.parametrize("version", [0, 2, 255])
def test_version_mismatch(version: int) -> None:
    text = refusal(b"\x92\xa3NEO" + bytes([version]))
    assert text == (f"protocol version mismatch: the peer speaks version {version}, this node 1")


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-SSH", bytes(6), b"\x92\xc4\x03NEO\x01", b"\x92NEO!!"],
)
def test_foreign_magic(data: bytes) -> None:
    assert refusal(data) == f"the peer is not a NEO node, it began with {data[:6]!r}"


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01", b"\x15\x03\x03\x00\x02\x02"])
def test_tls_to_a_node_without_tls(data: bytes) -> None:
    assert "the peer uses TLS and this node does not" in refusal(data)


def test_nothing_is_answered_to_a_foreign_peer() -> None:
    """Specification 2.3."""
    connection = Connection(server=True)
    connection.take_outgoing()
    with pytest.raises(HandshakeError) as caught:
        receive(connection, b"GET / HTTP/1.1\r\n")
    connection.fail(caught.value)
    assert connection.closed
    assert connection.take_outgoing() == b""


# -- message ids -----------------------------------------------------------------------------------


def test_requests_and_notifications_share_one_counter() -> None:
    """Specification 2.18."""
    connection = opened()
    connection.ask(Ping(), None)
    connection.send(NotifyReady())
    connection.answer(77, Pong())
    connection.send(NotifyReady(), message_id=5)
    assert connection.ask(Ping(), None) == 2
    assert connection.take_outgoing() == (
        encode(0, Ping())
        + encode(1, NotifyReady())
        + encode(77, Pong())
        + encode(5, NotifyReady())
        + encode(2, Ping())
    )
    assert connection.take_outgoing() == b"", "bytes are given once"


def test_ids_wrap_at_32_bits() -> None:
    """Specification 2.18."""
    connection = opened()
    connection._next_id = 0xFFFFFFFF
    assert [connection.ask(Ping(), None) for _ in range(2)] == [0xFFFFFFFF, 0]
    assert len(receive(connection, encode(0xFFFFFFFF, Pong()) + encode(0, Pong()))) == 2


def test_many_requests_are_the_same_bytes_as_one_after_the_other() -> None:
    """Specification 2.18."""
    connection = opened()
    connection._next_id = 0xFFFFFFFF
    connection.ask_many([(Ping(), "a"), (AskClusterState(), "b"), (Ping(), "c")])
    assert connection.ask(Ping(), "d") == 2
    assert connection.outgoing == [
        encode(0xFFFFFFFF, Ping()) + encode(0, AskClusterState()) + encode(1, Ping()),
        encode(2, Ping()),
    ]
    answered = receive(connection, encode(1, Pong()) + encode(0xFFFFFFFF, Pong()))
    assert [received.question.context for received in answered if received.question] == ["c", "a"]


def test_both_directions_count_on_their_own() -> None:
    """Specification 2.18."""
    dialer, server = pair()
    assert dialer.ask(Ping(), "a") == 0
    assert server.ask(AskClusterState(), "b") == 0
    assert receive(server, dialer.take_outgoing()) == [(0, Ping(), None)]


def test_the_peers_ids_are_not_checked() -> None:
    """Specification 2.19."""
    connection = opened()
    data = encode(2**40, Ping()) + encode(3, Ping()) + encode(3, Ping())
    assert [received.message_id for received in receive(connection, data)] == [2**40, 3, 3]


# -- questions and answers -------------------------------------------------------------------------


def test_answers_come_in_any_order() -> None:
    """Specification 2.20."""
    connection = opened()
    oids = connection.ask(AskNewOIDs(1), "oids")
    state = connection.ask(AskClusterState(), "state")
    data = encode(state, AnswerClusterState(None)) + encode(oids, AnswerNewOIDs([OID]))
    got = receive(connection, data)
    assert [(r.message, r.question and r.question.context) for r in got] == [
        (AnswerClusterState(None), "state"),
        (AnswerNewOIDs([OID]), "oids"),
    ]
    assert connection.questions == {}


def test_an_error_answers_any_question() -> None:
    """Specification 2.16."""
    connection = opened()
    first = connection.ask(AskNewOIDs(1), "oids")
    second = connection.ask(FailedVote(OID, [1]), "vote")
    data = encode(first, Error(2, "later")) + encode(second, Error(0, ""))
    got = receive(connection, data)
    assert [r.question and r.question.context for r in got] == ["oids", "vote"]


@pytest.mark.parametrize("message_id", [0, 1, 2**32])
def test_an_answer_to_no_question(message_id: int) -> None:
    """Specification 2.24. That of a question which was answered before is one, too."""
    connection = opened()
    connection.ask(Ping(), None)
    receive(connection, encode(0, Pong()))
    with pytest.raises(PeerError, match="Pong answers no request of this node"):
        receive(connection, encode(message_id, Pong()))


def test_the_answer_of_another_question() -> None:
    """Specification 2.25."""
    connection = opened()
    connection.ask(Ping(), "ping")
    with pytest.raises(PeerError, match="Pong expected, got AnswerNewOIDs"):
        receive(connection, encode(0, AnswerNewOIDs([])))
    assert [question.context for question in connection.close()] == ["ping"]


def test_an_error_of_the_peer_about_nothing_is_its_last_word() -> None:
    """Specification 2.26."""
    connection = opened()
    for message_id in (None, 4):
        with pytest.raises(LastWords, match="the peer says: you are wrong") as raised:
            receive(connection, encode(message_id, Error(6, "you are wrong")))
    connection.take_outgoing()
    connection.fail(raised.value)
    assert connection.closed and not connection.take_outgoing(), "it does not listen any more"


# -- limits ----------------------------------------------------------------------------------------


def test_a_stranger_may_not_send_long_messages() -> None:
    """Specification 2.34."""
    connection = opened(server=True)
    assert len(receive(connection, encode(0, Ping()) * LIMIT_STRANGER)) == LIMIT_STRANGER
    with pytest.raises(PeerError):
        receive(connection, encode(0, LONG))
    assert len(receive(opened(server=False), encode(0, LONG))) == 1, "who was dialed is trusted"


def test_trust_takes_effect_between_two_messages_of_one_segment() -> None:
    connection = opened(server=True)
    request = RequestIdentification(NodeType.CLIENT, None, None, "c", None, {})
    got = []
    for received in connection.receive(
        encode(0, request) + encode(1, LONG) * 3 + encode(4, Ping())
    ):
        got.append(type(received.message))
        connection.trust()
    assert got == [RequestIdentification, *[AskFinishTransaction] * 3, Ping]


def test_trust_while_a_message_is_half_received() -> None:
    connection = opened(server=True)
    short = encode(1, AskFinishTransaction(OID, [OID] * 3000, []))
    assert receive(connection, short[:20_000]) == []
    connection.trust()
    assert len(receive(connection, short[20_000:] + encode(2, LONG))) == 2


def test_a_gigabyte_announced_by_a_trusted_peer() -> None:
    """Specification 2.14, 2.36."""
    connection = opened()
    with pytest.raises(PeerError, match=f"{2**30} bytes are announced") as caught:
        receive(connection, b"\x93\x00\x1c\x97\xc6\x40\x00\x00\x00")
    connection.fail(caught.value)
    assert connection.take_outgoing() == encode(
        None,
        Error(6, f"message of more than {LIMIT_PEER} bytes: {2**30} bytes are announced"),
    )


def test_a_truncated_message_waits_for_its_end() -> None:
    connection = opened()
    data = encode(0, LONG)
    for part in (data[:1], data[1:100], data[100:-1]):
        assert receive(connection, part) == []
    assert len(receive(connection, data[-1:])) == 1


# -- the end ---------------------------------------------------------------------------------------


def test_failing_tells_the_peer_with_the_last_id_received() -> None:
    """Specification 2.24."""
    connection = opened()
    receive(connection, encode(8, Ping()) + encode(9, FlushLog()))
    connection.fail(PeerError("you are wrong"))
    assert connection.closed
    assert connection.take_outgoing() == encode(9, Error(6, "you are wrong"))


def test_close_drops_what_was_not_sent_and_returns_the_questions() -> None:
    """Specification 2.27."""
    connection = opened()
    connection.ask(Ping(), "one")
    connection.ask(Ping(), "two")
    assert [question.context for question in connection.close()] == ["one", "two"]
    assert connection.close() == []
    connection.send(StopOperation())
    connection.answer(0, Pong())
    assert connection.take_outgoing() == b""
    with pytest.raises(AssertionError):
        connection.ask(Ping(), None)


def test_nothing_enters_a_closed_connection() -> None:
    """Specification 2.27."""
    connection = opened()
    messages = connection.receive(encode(0, Ping()) + encode(1, CloseClient()) + encode(2, Ping()))
    assert next(messages).message == Ping()
    connection.close()
    assert list(messages) == []
    assert receive(connection, encode(3, Ping())) == []


def test_a_whole_conversation() -> None:
    dialer, server = pair()
    dialer.ask(RequestIdentification(NodeType.CLIENT, None, None, "c", None, {}), "who")
    (question,) = receive(server, dialer.take_outgoing())
    server.trust()
    server.answer(question.message_id, AcceptIdentification(NodeType.MASTER, 1, 2))
    server.send(NotifyReady())
    answer, notification = receive(dialer, server.take_outgoing())
    assert answer.question is not None
    assert answer.question.context == "who"
    assert answer.message == AcceptIdentification(NodeType.MASTER, 1, 2)
    assert notification == (0, NotifyReady(), None)
