"""Two nodes of one process: messages as objects, as strict as over the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neo.node.backlog import PEER_BYTES, SLOW_BYTES
from neo.node.handler import Handler, on
from neo.node.local import TURN_DELIVERIES, Deliveries, LocalLink, join
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    AnswerLastTransaction,
    AnswerObject,
    AskClusterState,
    AskFinalTID,
    AskLastTransaction,
    AskNewOIDs,
    AskObject,
    CloseClient,
    InvalidateObjects,
    Message,
    NotifyReady,
    Ping,
    Pong,
)
from tests.support.passing import check
from tests.support.remote import FakeHost, error_of
from tests.unit.node.serving import TID, Server, Serving, lost

HERE, THERE = ("127.0.0.1", 1), ("127.0.0.1", 2)


class Recording(Serving):
    """Notes what arrives, and answers loads with as many bytes as wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Message] = []
        self.size = 1

    @on(InvalidateObjects)
    def invalidate(self, peer: Peer, message_id: int, message: Message) -> None:
        self.heard.append(message)

    @on(AskObject)
    def load(self, peer: Peer, message_id: int, message: AskObject) -> Message:
        self.heard.append(message)
        return AnswerObject(message.oid, TID, None, 0, bytes(20), bytes(self.size), None)


class Node(Server):
    def __init__(self, host: FakeHost) -> None:
        super().__init__(host)
        self.handler: Recording = Recording()

    def stranger_handler(self) -> Handler:
        return self.handler


class Pair:
    """A node that dials another one. Nothing is delivered before :meth:`run`."""

    def __init__(self) -> None:
        self.wakes = 0
        self.deliveries = Deliveries(self._wake, check)
        self.here, self.there = (self._node() for _ in range(2))
        self.peer = Peer(self.here, self.here.handler, THERE, server=False)
        self.accepts: Callable[[LocalLink], None] = self.accept
        self.link = join(self.peer, self.deliveries, lambda link: self.accepts(link))

    def _node(self) -> Node:
        host = FakeHost()
        host.core = core = Node(host)
        core.start()
        return core

    def _wake(self) -> None:
        self.wakes += 1

    def accept(self, link: LocalLink) -> None:
        link.attach(self.there.accepted(HERE))
        self.there.flush()

    @property
    def far(self) -> Peer:
        (peer,) = self.there.peers
        return peer

    def run(self) -> None:
        """Let both nodes work until nothing waits."""
        self.here.flush()
        self.there.flush()
        for _ in range(100):
            self.deliveries.run()
            for node in (self.here, self.there):
                assert isinstance(node.host, FakeHost)
                node.host.advance(0.0)
            if not self.deliveries.waiting:
                return
        raise AssertionError("it never ends")


@pytest.fixture
def pair() -> Pair:
    return Pair()


def invalidation(number: int) -> InvalidateObjects:
    return InvalidateObjects(number.to_bytes(8, "big"), [bytes(8)])


def test_questions_and_answers_in_both_directions(pair: Pair) -> None:
    first = pair.peer.ask(AskLastTransaction())
    refused = pair.peer.ask(AskNewOIDs(1))
    pair.run()
    assert first.result() == AnswerLastTransaction(TID)
    assert error_of(refused).code is ErrorCode.READ_ONLY_ACCESS
    other = pair.far.ask(Ping())
    pair.run()
    assert other.result() == Pong()
    assert repr(pair.far) == "unidentified peer (127.0.0.1:1)"
    assert pair.peer.connection.greeted


def test_nothing_is_delivered_while_a_core_is_on_the_stack(pair: Pair) -> None:
    """A flush only queues: the owner of the deliveries is woken once."""
    question = pair.peer.ask(AskLastTransaction())
    pair.here.flush()
    assert not pair.there.peers
    assert not question.done
    assert pair.wakes == 1
    pair.run()
    assert question.done


def test_a_turn_of_deliveries_is_bounded(pair: Pair) -> None:
    pair.run()
    wakes = pair.wakes
    for number in range(2 * TURN_DELIVERIES):
        pair.peer.send(invalidation(number))
        pair.here.flush()
    pair.deliveries.run()
    assert len(pair.there.handler.heard) == TURN_DELIVERIES
    assert pair.deliveries.waiting
    assert pair.wakes == wakes + 2, "the owner is woken for the rest"
    pair.run()
    assert pair.there.handler.heard == [invalidation(n) for n in range(2 * TURN_DELIVERIES)]


def test_what_was_sent_before_the_close_arrives(pair: Pair) -> None:
    """Specification 2.27."""
    pair.peer.send(invalidation(1))
    pair.here.flush()
    pair.peer.send(invalidation(2))
    pair.peer.close()
    pair.run()
    assert pair.there.handler.heard == [invalidation(1), invalidation(2)]
    assert pair.there.handler.lost_peers == ["closed by the peer"]
    assert not pair.there.peers


def test_nothing_is_reported_after_the_own_close(pair: Pair) -> None:
    question = pair.peer.ask(AskLastTransaction())
    pair.run()
    pair.far.send(NotifyReady())
    pair.there.flush()
    pair.peer.close()
    pair.run()
    assert question.done
    assert pair.here.handler.lost_peers == []
    assert pair.there.handler.lost_peers == ["closed by the peer"]


def test_both_ends_close_at_once(pair: Pair) -> None:
    pair.run()
    far = pair.far
    pair.peer.close()
    far.close()
    pair.run()
    assert pair.here.handler.lost_peers == pair.there.handler.lost_peers == []


def test_an_open_question_fails_when_the_other_core_stops(pair: Pair) -> None:
    question = pair.peer.ask(AskFinalTID(TID))
    pair.run()
    assert not question.done
    pair.there.abandon()
    pair.run()
    assert "ended: closed by the peer" in lost(question)


def test_a_node_without_a_core_tells_why(pair: Pair) -> None:
    question = pair.peer.ask(AskLastTransaction())
    pair.accepts = lambda link: link.refuse("not started yet: the disk is away")
    pair.run()
    assert pair.here.handler.lost_peers == ["the peer says: not started yet: the disk is away"]
    assert pair.peer.last_words == "not started yet: the disk is away"
    lost(question)


def test_a_dial_that_is_given_up_before_it_is_accepted(pair: Pair) -> None:
    pair.peer.send(invalidation(1))
    pair.peer.close()
    pair.run()
    assert pair.there.handler.heard == [invalidation(1)]
    assert not pair.there.peers


def test_a_breach_of_the_protocol_ends_the_connection_with_its_reason(pair: Pair) -> None:
    """Specification 2.24."""
    question = pair.peer.ask(AskClusterState())
    pair.run()
    assert error_of(question).message == "unexpected AskClusterState (Recording)"
    assert not pair.there.peers and not pair.here.peers


def test_a_peer_that_is_not_wanted(pair: Pair) -> None:
    pair.peer.send(CloseClient())
    pair.run()
    assert pair.here.handler.lost_peers == ["the peer says: we do not want you"]


def test_an_answer_to_no_question_is_the_error_of_its_sender(pair: Pair) -> None:
    """Specification 2.23."""
    pair.run()
    pair.far.connection.answer(7, Pong())
    pair.there.touched[pair.far] = None
    pair.run()
    assert pair.here.handler.lost_peers == ["protocol error: Pong answers no request of this node"]


# -- flow control ------------------------------------------------------------------------------------


def test_answers_that_are_not_read_hold_back_requests(pair: Pair) -> None:
    pair.there.handler.size = SLOW_BYTES
    pair.run()
    pair.link.pause_reading()
    questions: list[Any] = [pair.peer.ask(AskObject(TID, None, TID)) for _ in range(100)]
    pair.run()
    executed = len(pair.there.handler.heard)
    assert PEER_BYTES // SLOW_BYTES <= executed < 25
    assert pair.far.unread > PEER_BYTES
    assert not questions[0].done
    pair.link.resume_reading()
    pair.run()
    assert all(question.done for question in questions)
    assert pair.far.unread == 0


def test_a_peer_that_closes_is_no_reason_to_wait(pair: Pair) -> None:
    """What nobody reads any more is not unread, and the end arrives."""
    pair.there.handler.size = SLOW_BYTES
    pair.run()
    pair.link.pause_reading()
    for _ in range(100):
        pair.peer.ask(AskObject(TID, None, TID))
    pair.run()
    assert pair.far.unread > PEER_BYTES
    pair.peer.close()
    pair.run()
    assert not pair.there.peers
    assert len(pair.there.handler.heard) == 100
    assert pair.there.handler.lost_peers == ["closed by the peer"]


def test_a_failure_of_one_delivery_stops_no_other(pair: Pair) -> None:
    pair.run()
    other = Pair()
    other.deliveries = pair.deliveries
    peer = Peer(other.here, other.here.handler, THERE, server=False)
    join(peer, pair.deliveries, other.accept)
    pair.run()
    pair.there.handler.fail_in_lost = True
    pair.peer.close()
    peer.send(invalidation(1))
    other.here.flush()
    with pytest.raises(ZeroDivisionError):
        pair.deliveries.run()
    assert pair.deliveries.waiting
    pair.deliveries.run()
    assert other.there.handler.heard == [invalidation(1)]


def test_a_list_that_its_sender_changes_later(pair: Pair) -> None:
    oids = [bytes(8)]
    pair.peer.send(InvalidateObjects(TID, oids))
    oids.append(TID)
    pair.run()
    assert pair.there.handler.heard == [InvalidateObjects(TID, [bytes(8)])]
