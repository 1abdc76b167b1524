"""Peers and handlers: one bad peer never hurts another, no asker waits for ever."""

from __future__ import annotations

import logging

import pytest

from neo.net.connection import HANDSHAKE
from neo.node.core import STRANGER_SECONDS, WATCH_SECONDS, Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.codec import encode
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer, PeerError
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
    Message,
    NotifyReady,
    Ping,
    Pong,
)
from neo.topology.nodes import Node
from tests.support.remote import FakeShell, Remote, error_of

TID = bytes(8)


class Serving(Handler):
    """Does one of everything that a handler may do."""

    def __init__(self) -> None:
        self.open: list[int] = []
        self.lost_peers: list[str] = []
        self.fail_in_lost = False

    @on(AskLastTransaction)
    def last_transaction(self, peer: Peer, message_id: int, message: Message) -> Message:
        return AnswerLastTransaction(TID)

    @on(AskNewOIDs)
    def refuse(self, peer: Peer, message_id: int, message: Message) -> Message:
        raise ErrorAnswer(ErrorCode.READ_ONLY_ACCESS, "no oids")

    @on(AskFinalTID)
    def later(self, peer: Peer, message_id: int, message: Message) -> None:
        self.open.append(message_id)

    @on(FlushLog, NotifyReady)
    def mistake(self, peer: Peer, message_id: int, message: Message) -> None:
        raise ZeroDivisionError("our mistake")

    @on(CloseClient)
    def drop(self, peer: Peer, message_id: int, message: Message) -> None:
        raise PeerError("we do not want you")

    def lost(self, peer: Peer, reason: str) -> None:
        self.lost_peers.append(reason)
        if self.fail_in_lost:
            raise ZeroDivisionError("in lost()")


class Server(Core):
    def __init__(self, shell: FakeShell) -> None:
        super().__init__(shell)
        self.handler = Serving()

    def stranger_handler(self) -> Handler:
        return self.handler


@pytest.fixture
def shell() -> FakeShell:
    return FakeShell()


@pytest.fixture
def core(shell: FakeShell) -> Server:
    core = Server(shell)
    shell.core = core
    core.start()
    return core


def works(core: Core) -> bool:
    """A new peer is served."""
    return bool(Remote.connect(core).ask(Ping()).done)


# -- serving ---------------------------------------------------------------------------------------


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
        always_read = False

        def write(self, data: bytes) -> None:
            written.append(data)

        def close(self) -> None:
            pass

    peer.link = Link()
    core.flush()
    assert written == [HANDSHAKE]


# -- bad peers -------------------------------------------------------------------------------------


def test_an_unexpected_message(core: Server, caplog: pytest.LogCaptureFixture) -> None:
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
    caplog.set_level(logging.INFO)
    remote = Remote.connect(core)
    last_words = Error(ErrorCode.NOT_READY.value, "my disk is full")
    remote.peer.received(HANDSHAKE + encode(None, last_words))  # type: ignore[arg-type]
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
        (HANDSHAKE + encode(0, Pong()), "answer to no question: Pong"),
    ],
)
def test_each_mistake_is_named_in_the_log(
    core: Server, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    other = Remote.connect(core)
    bad = Remote.connect(core)
    bad.peer.received(data)
    assert bad.closed
    assert reason in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
    assert bad.peer not in core.peers
    assert other.ask(AskLastTransaction()).done


def test_our_own_mistake_closes_only_that_peer(
    core: Server, caplog: pytest.LogCaptureFixture, shell: FakeShell
) -> None:
    other = Remote.connect(core)
    remote = Remote.connect(core)
    remote.send(FlushLog())
    assert remote.closed
    assert "failure while serving unidentified peer" in caplog.text
    assert "ZeroDivisionError: our mistake" in caplog.text
    assert other.ask(AskLastTransaction()).done
    assert shell.exit_code is None


def test_what_came_before_the_mistake_is_answered(core: Server) -> None:
    remote = Remote.connect(core)
    remote.peer.received(HANDSHAKE + encode(0, Ping()) + encode(1, FlushLog()) + encode(2, Ping()))
    assert [type(message) for message in remote.received if type(message) is Pong] == []
    assert remote.complaint == "answer to no question: Pong"  # exactly one was sent, then the end
    assert remote.closed


def test_nothing_is_served_to_a_closed_peer(core: Server) -> None:
    remote = Remote.connect(core)
    remote.peer.close()
    remote.peer.received(HANDSHAKE + encode(0, AskFinalTID(TID)))
    assert core.handler.open == []


# -- questions -------------------------------------------------------------------------------------


class Asking:
    """The core asks a node that it dialed."""

    def __init__(self, core: Server, shell: FakeShell) -> None:
        self.peer = core.dial(("127.0.0.1", 7), core.handler)
        self.remote = shell.dialed[-1]
        core.flush()

    def ask(self, message: Message) -> Future[Message]:
        future = self.peer.ask(message)
        self.peer.core.flush()
        return future


@pytest.fixture
def asking(core: Server, shell: FakeShell) -> Asking:
    return Asking(core, shell)


def lost(future: Future[Message]) -> str:
    with pytest.raises(ConnectionLost) as caught:
        future.result()
    return str(caught.value)


def test_an_answer(asking: Asking) -> None:
    future = asking.ask(AskNewOIDs(1))
    asking.remote.answer(asking.remote.take(AskNewOIDs), AnswerNewOIDs([TID]))
    assert future.result() == AnswerNewOIDs([TID])


def test_a_refusal(asking: Asking) -> None:
    future = asking.ask(AskNewOIDs(1))
    asking.remote.answer(asking.remote.take(AskNewOIDs), Error(2, "later"))
    error = error_of(future)
    assert (error.code, error.message) == (ErrorCode.NOT_READY, "later")


def test_ack_is_the_answer_of_requests_without_one(asking: Asking) -> None:
    future = asking.ask(FailedVote(TID, [1]))
    asking.remote.answer(asking.remote.take(FailedVote), Error(0, "fine"))
    assert future.result() == Error(0, "fine")


def test_ack_is_no_answer_of_other_requests(asking: Asking) -> None:
    future = asking.ask(AskNewOIDs(1))
    asking.remote.answer(asking.remote.take(AskNewOIDs), Error(0, ""))
    assert error_of(future).code is ErrorCode.ACK


def test_an_unknown_error_code_fails_the_question_alone(asking: Asking) -> None:
    future = asking.ask(AskNewOIDs(1))
    asking.remote.answer(asking.remote.take(AskNewOIDs), Error(77, "?"))
    assert error_of(future).message == "unknown error code 77: ?"
    assert not asking.peer.closed


def test_the_wrong_answer_fails_the_question_with_the_connection(asking: Asking) -> None:
    future = asking.ask(AskNewOIDs(1))
    asking.remote.answer(asking.remote.take(AskNewOIDs), Pong())
    assert "AnswerNewOIDs expected, got Pong" in lost(future)
    assert asking.peer.closed


def test_a_lost_connection_fails_all_questions(asking: Asking, core: Server) -> None:
    futures = [asking.ask(AskNewOIDs(1)), asking.ask(Ping())]
    asking.remote.lose("cable cut")
    for future in futures:
        assert lost(future) == "connection with unidentified peer (127.0.0.1:7) ended: cable cut"
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
    assert "was closed by us" in lost(future)
    assert core.handler.lost_peers == []
    asking.peer.close()
    asking.peer.lost("too late")
    assert core.handler.lost_peers == []


def test_what_was_queued_before_our_close_is_sent(asking: Asking) -> None:
    asking.peer.send(NotifyReady())
    asking.peer.close()
    assert asking.remote.has(NotifyReady)
    assert asking.remote.closed


def test_asking_who_is_gone_fails_at_once(asking: Asking) -> None:
    asking.peer.close()
    assert "is not connected any more" in lost(asking.peer.ask(Ping()))
    asking.peer.send(NotifyReady())  # nothing happens


def test_a_lost_peer_is_reported_once(asking: Asking, core: Server) -> None:
    asking.remote.lose("first")
    asking.peer.lost("second")
    assert core.handler.lost_peers == ["first"]


def test_names_of_peers(core: Server) -> None:
    peer = core.accepted(("::1", 5))
    assert repr(peer) == "unidentified peer ([::1]:5)"
    peer.node = Node(NodeType.STORAGE, 3)
    assert repr(peer) == "S3 ([::1]:5)"


# -- core ------------------------------------------------------------------------------------------


def test_strangers_are_disconnected_after_a_while(
    core: Server, shell: FakeShell, caplog: pytest.LogCaptureFixture
) -> None:
    stranger, known = Remote.connect(core), Remote.connect(core)
    known.peer.node = Node(NodeType.STORAGE, 3)
    dialed = Asking(core, shell)
    shell.advance(STRANGER_SECONDS - 1)
    assert not stranger.closed
    shell.advance(STRANGER_SECONDS)
    assert stranger.closed
    assert not known.closed
    assert not dialed.remote.closed
    assert "did not identify itself in time" in caplog.text


def test_a_peer_that_owes_an_answer_and_hangs_is_given_up(
    core: Server, shell: FakeShell, caplog: pytest.LogCaptureFixture
) -> None:
    hanging, slow, idle = Asking(core, shell), Asking(core, shell), Asking(core, shell)
    futures = [hanging.peer.ask(AskLastTransaction()), slow.peer.ask(AskLastTransaction())]
    core.flush()
    shell.advance(4 * WATCH_SECONDS)
    assert [a.remote.has(Ping) for a in (hanging, slow, idle)] == [True, True, False]
    for _ in range(20):
        # What takes long is not what hangs.
        if slow.remote.has(Ping):
            slow.remote.answer(slow.remote.take(Ping), Pong())
        shell.advance(WATCH_SECONDS)
    assert [a.remote.closed for a in (hanging, slow, idle)] == [True, False, False]
    assert core.handler.lost_peers == ["it does not answer"]
    with pytest.raises(ConnectionLost):
        futures[0].result()
    slow.remote.answer(slow.remote.take(AskLastTransaction), AnswerLastTransaction(TID))
    assert futures[1].result() == AnswerLastTransaction(TID)
    assert "does not even answer to Ping: is it hanging?" in caplog.text


def test_a_process_that_stood_still_hears_first_what_came_meanwhile(
    core: Server, shell: FakeShell
) -> None:
    asking = Asking(core, shell)
    asking.peer.ask(AskLastTransaction())
    core.flush()
    shell.advance(4 * WATCH_SECONDS)
    shell.elapsed += 1000 * WATCH_SECONDS
    shell.advance(0)
    asking.remote.answer(asking.remote.take(Ping), Pong())
    shell.advance(2 * WATCH_SECONDS)
    assert not asking.remote.closed


def test_nodes_that_serve_neoctl_are_patient(core: Server, shell: FakeShell) -> None:
    core.must_identify = False
    stranger = Remote.connect(core)
    shell.advance(10 * STRANGER_SECONDS)
    assert not stranger.closed


def test_stopping_closes_everything_once(core: Server, shell: FakeShell) -> None:
    remote = Remote.connect(core)
    task = core.spawn(_forever(core))
    core.stop(3)
    core.stop(0)
    assert shell.exit_code == 3
    assert remote.closed
    assert task.done
    assert not core.peers


def test_timers_of_a_stopped_core_do_nothing(core: Server, shell: FakeShell) -> None:
    called: list[int] = []
    core.call_later(1, lambda: called.append(1))
    core.stop(0)
    shell.advance(100)
    assert called == []


def test_a_workflow_that_fails_ends_the_node(
    core: Server, shell: FakeShell, caplog: pytest.LogCaptureFixture
) -> None:
    async def flow() -> None:
        await core.sleep(1)
        raise KeyError("state unknown")

    core.spawn(flow())
    shell.advance(1)
    assert shell.exit_code == 1
    assert "flow failed" in caplog.text
    assert "KeyError: 'state unknown'" in caplog.text


def test_a_cancelled_workflow_does_not_end_the_node(core: Server, shell: FakeShell) -> None:
    task = core.spawn(_forever(core))
    task.cancel()
    shell.advance(10)
    assert shell.exit_code is None


async def _forever(core: Core) -> None:
    while True:
        await core.sleep(1)


# -- tables of handlers ----------------------------------------------------------------------------


def test_handlers_inherit_and_replace() -> None:
    class Base(Handler):
        @on(AskLastTransaction)
        def last(self, peer: Peer, message_id: int, message: Message) -> Message:
            return AnswerLastTransaction(b"base____")

        @on(AskNewOIDs)
        def oids(self, peer: Peer, message_id: int, message: Message) -> Message:
            return AnswerNewOIDs([])

    class Derived(Base):
        @on(AskLastTransaction)
        def other(self, peer: Peer, message_id: int, message: Message) -> Message:
            return AnswerLastTransaction(b"derived_")

    assert Base.table == {Ping: "ping", AskLastTransaction: "last", AskNewOIDs: "oids"}
    assert Derived.table == {Ping: "ping", AskLastTransaction: "other", AskNewOIDs: "oids"}
    assert Derived().method(FlushLog) is None
    assert Handler.table == {Ping: "ping"}
