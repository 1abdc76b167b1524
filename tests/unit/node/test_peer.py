"""Peers and handlers: one bad peer never hurts another, no asker waits for ever."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from neo.net.connection import HANDSHAKE
from neo.node.core import Core
from neo.node.task import Future
from neo.protocol.codec import encode
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.packets import (
    AnswerLastTransaction,
    AnswerNewOIDs,
    AskClusterState,
    AskFinalTID,
    AskLastTransaction,
    AskNewOIDs,
    CloseClient,
    Error,
    FailedVote,
    FlushLog,
    NotifyReady,
    Ping,
    Pong,
)
from neo.topology.nodes import Node
from tests.support.remote import FakeHost, Remote, error_of
from tests.unit.node.serving import TID, Asking, Server, lost


def works(core: Core) -> bool:
    """A new peer is served."""
    return bool(Remote.connect(core).ask(Ping()).done)


# -- serving -------------------------------------------------------------------------------------


def test_answers(core: Server) -> None:
    remote = Remote.connect(core)
    assert remote.ask(AskLastTransaction()).result() == AnswerLastTransaction(TID)
    assert remote.ask(Ping()).result() == Pong()
    error = error_of(remote.ask(AskNewOIDs(1)))
    assert (error.code, error.message) == (ErrorCode.READ_ONLY_ACCESS, "no oids")
    assert not remote.closed


def test_an_answer_that_comes_later(core: Server) -> None:
    remote = Remote.connect(core)
    question = remote.ask(AskFinalTID(TID))
    other = remote.ask(AskLastTransaction())
    assert other.done
    assert not question.done
    remote.peer.refuse(core.handler.open[0], ErrorCode.NOT_READY, "not yet")
    core.flush()
    assert error_of(question).code is ErrorCode.NOT_READY


def test_everything_of_one_event_leaves_in_one_write(core: Server) -> None:
    remote = Remote.connect(core)
    writes: list[bytes] = []
    remote.write = writes.append  # type: ignore[assignment, method-assign]
    remote.peer.received(HANDSHAKE + encode(0, Ping()) * 3 + encode(3, AskLastTransaction()))
    assert len(writes) == 1


def test_the_handshake_is_sent_when_somebody_connects(core: Server) -> None:
    peer = core.accepted(("127.0.0.1", 5))
    written: list[bytes] = []

    class Link:
        unsent = 0

        def write(self, data: bytes) -> None:
            written.append(data)

        def pause_reading(self) -> None:
            pass

        resume_reading = pause_reading

        def close(self) -> None:
            pass

    peer.link = Link()
    core.flush()
    assert written == [HANDSHAKE]


# -- bad peers -----------------------------------------------------------------------------------


def test_an_unexpected_message(core: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Specification 2.24."""
    remote = Remote.connect(core)
    question = remote.ask(AskClusterState())
    assert error_of(question).code is ErrorCode.PROTOCOL_ERROR
    assert remote.closed
    assert "unexpected AskClusterState (Serving)" in error_of(question).message
    assert "unidentified peer (127.0.0.1:9999) broke the protocol: unexpected" in caplog.text
    assert core.handler.lost_peers == ["protocol error: unexpected AskClusterState (Serving)"]
    assert works(core)


def test_a_handler_gets_rid_of_its_peer(core: Server) -> None:
    remote = Remote.connect(core)
    remote.send(CloseClient())
    assert remote.closed
    assert remote.complaint == "the peer says: we do not want you"
    assert works(core)


def test_a_farewell_is_the_reason_of_the_loss_and_no_breach(
    core: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 2.26."""
    caplog.set_level(logging.INFO)
    remote = Remote.connect(core)
    last_words = Error(ErrorCode.NOT_READY.value, "my disk is full")
    remote.peer.received(HANDSHAKE + encode(None, last_words))
    assert remote.closed
    assert core.handler.lost_peers == ["the peer says: my disk is full"]
    assert "ended: the peer says: my disk is full" in caplog.text
    assert "broke the protocol" not in caplog.text
    assert remote.complaint == "", "nobody answers"
    assert works(core)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "the peer is not a NEO node"),
        (b"\x92\xa3NEO\x02", "protocol version mismatch"),
        (b"\x16\x03\x01\x02", "the peer uses TLS and this node does not"),
        (HANDSHAKE + b"\xc1", "malformed message"),
        (HANDSHAKE + b"\x93\x00\xcd\x3f\xff\x90", "unknown message code 0x3fff"),
        (HANDSHAKE + b"\x93\x00\x02\x91\xc0", "Ping: 0 arguments expected, got 1"),
        (HANDSHAKE + b"\x93\x00\x1c\x97\xc6\x40\x00\x00\x00", "1073741824 bytes are announced"),
        (HANDSHAKE + encode(0, Pong()), "Pong answers no request of this node"),
    ],
)
def test_each_mistake_is_named_in_the_log(
    core: Server, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    """Specification 2.24, 22.7."""
    other = Remote.connect(core)
    bad = Remote.connect(core)
    bad.peer.received(data)
    assert bad.closed
    assert reason in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
    assert bad.peer not in core.peers
    assert other.ask(AskLastTransaction()).done


def test_our_own_mistake_closes_only_that_peer(
    core: Server, caplog: pytest.LogCaptureFixture, host: FakeHost
) -> None:
    """Specification 22.7."""
    other = Remote.connect(core)
    remote = Remote.connect(core)
    remote.send(FlushLog())
    assert remote.closed
    assert "failure while serving unidentified peer" in caplog.text
    assert "ZeroDivisionError: our mistake" in caplog.text
    assert other.ask(AskLastTransaction()).done
    assert host.exit_code is None


def test_what_came_before_the_mistake_is_answered(core: Server) -> None:
    remote = Remote.connect(core)
    remote.peer.received(HANDSHAKE + encode(0, Ping()) + encode(1, FlushLog()) + encode(2, Ping()))
    assert [type(message) for message in remote.received if type(message) is Pong] == []
    # Exactly one Error was sent, then the end.
    assert remote.complaint == "Pong answers no request of this node"
    assert remote.closed


def test_nothing_is_served_to_a_closed_peer(core: Server) -> None:
    remote = Remote.connect(core)
    remote.peer.close()
    remote.peer.received(HANDSHAKE + encode(0, AskFinalTID(TID)))
    assert core.handler.open == []


# -- questions -----------------------------------------------------------------------------------


def test_an_answer(asking: Asking) -> None:
    future = asking.ask(AskNewOIDs(1))
    asking.remote.answer(asking.remote.take(AskNewOIDs), AnswerNewOIDs([TID]))
    assert future.result() == AnswerNewOIDs([TID])


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        pytest.param(Error(2, "later"), ErrorCode.NOT_READY, "later", id="refusal"),
        pytest.param(Error(0, ""), ErrorCode.ACK, "", id="an ACK is no answer"),
        pytest.param(
            Error(77, "?"), ErrorCode.PROTOCOL_ERROR, "unknown error code 77: ?", id="unknown code"
        ),
    ],
)
def test_an_error_fails_the_question_alone(
    asking: Asking, answer: Error, code: ErrorCode, message: str
) -> None:
    """Specification 2.15, 2.16."""
    future = asking.ask(AskNewOIDs(1))
    asking.remote.answer(asking.remote.take(AskNewOIDs), answer)
    error = error_of(future)
    assert (error.code, error.message) == (code, message)
    assert not asking.peer.closed


def test_ack_is_the_answer_of_requests_without_one(asking: Asking) -> None:
    """Specification 2.15."""
    future = asking.ask(FailedVote(TID, [1]))
    asking.remote.answer(asking.remote.take(FailedVote), Error(0, "fine"))
    assert future.result() == Error(0, "fine")


def test_the_wrong_answer_fails_the_question_with_the_connection(asking: Asking) -> None:
    future = asking.ask(AskNewOIDs(1))
    asking.remote.answer(asking.remote.take(AskNewOIDs), Pong())
    assert "AnswerNewOIDs expected, got Pong" in lost(future)
    assert asking.peer.closed


def test_a_lost_connection_fails_all_questions_and_is_reported_once(
    asking: Asking, core: Server
) -> None:
    futures: list[Future[Any]] = [asking.ask(AskNewOIDs(1)), asking.ask(Ping())]
    asking.remote.lose("cable cut")
    for future in futures:
        assert lost(future) == "connection with unidentified peer (127.0.0.1:7) ended: cable cut"
    asking.peer.lost("second")
    assert core.handler.lost_peers == ["cable cut"]
    assert not core.peers


def test_questions_fail_even_when_the_handler_does(asking: Asking, core: Server) -> None:
    core.handler.fail_in_lost = True
    future = asking.ask(Ping())
    with pytest.raises(ZeroDivisionError):
        asking.remote.lose("cable cut")
    assert "cable cut" in lost(future)


def test_our_own_close_fails_the_questions_and_does_not_tell_the_handler(
    asking: Asking, core: Server
) -> None:
    future = asking.ask(Ping())
    asking.peer.close()
    assert "was closed by this node" in lost(future)
    assert core.handler.lost_peers == []
    asking.peer.close()
    asking.peer.lost("too late")
    assert core.handler.lost_peers == []


def test_what_was_queued_before_our_close_is_sent(asking: Asking) -> None:
    """Specification 2.27."""
    asking.peer.send(NotifyReady())
    asking.peer.close()
    assert asking.remote.has(NotifyReady)
    assert asking.remote.closed


def test_asking_who_is_gone_fails_at_once(asking: Asking) -> None:
    asking.peer.close()
    assert "is not connected any more" in lost(asking.peer.ask(Ping()))
    asking.peer.send(NotifyReady())  # nothing happens


def test_names_of_peers(core: Server) -> None:
    peer = core.accepted(("::1", 5))
    assert repr(peer) == "unidentified peer ([::1]:5)"
    peer.node = Node(NodeType.STORAGE, 3)
    assert repr(peer) == "S3 ([::1]:5)"
