from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from neo.client.host import system
from neo.client.host.system import SocketWire, System
from neo.net import connection, inbox
from neo.net.channel import Channel, Ticket
from neo.net.connection import Question, Received
from neo.protocol import codec
from neo.protocol.codec import Packet
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AnswerLastTransaction,
    AnswerNewOIDs,
    AskLastTransaction,
    AskNewOIDs,
    Error,
    InvalidateObjects,
    Message,
    Ping,
    Pong,
)
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.unit.client.peers import Peer, channel_to, echo, in_threads, nothing


def hold(channel: Channel, effect: Callable[[Any], Any], ticket: Ticket[Any] | None = None) -> Any:
    """Ask for the last tid, and let nothing that comes later take effect before ``effect`` of it."""
    ticket = ticket or Ticket(exclusive=True)
    with channel.presence(ticket):
        channel.ask(AskLastTransaction(), ticket)
        return channel.hold(ticket, effect)


def invalidation(n: int) -> InvalidateObjects:
    return InvalidateObjects(p64(n), [])


def followed(peer: Peer, received: Received) -> None:
    """Answer the nth AskLastTransaction with n, followed in the same packet by invalidation n."""
    if isinstance(received.message, AskLastTransaction):
        n = len([m for m in peer.received if isinstance(m, AskLastTransaction)])
        peer.connection.answer(received.message_id, AnswerLastTransaction(p64(n)))
        peer.connection.send(invalidation(n))
        peer.flush()
    else:
        echo(peer, received)


@pytest.fixture
def short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the interval at which a thread that waits for bytes checks its deadline."""
    monkeypatch.setattr(system, "TICK_SECONDS", 0.02)


def test_an_error_packet_is_raised_and_an_acknowledgement_is_not() -> None:
    def refuse(peer: Peer, received: Received) -> None:
        code = ErrorCode.DENIED if isinstance(received.message, AskNewOIDs) else ErrorCode.ACK
        peer.answer(received.message_id, Error(code.value, "why"))

    with channel_to(refuse) as (channel, _, _, _):
        with pytest.raises(ErrorAnswer, match="DENIED: why"):
            channel.call(AskNewOIDs(1))
        assert channel.call(AskLastTransaction()) == Error(0, "why")


def test_many_threads_share_the_connection_and_each_gets_its_own_answers() -> None:
    with channel_to(echo) as (channel, _, _, _):

        def work(first: int) -> bool:
            return all(
                channel.call(AskNewOIDs(n)).oid_list == [p64(n)] for n in range(first, first + 300)
            )

        assert in_threads(*(lambda i=i: work(1000 * i) for i in range(8))) == [True] * 8


def test_answers_may_come_in_any_order() -> None:
    waiting: list[Received] = []

    def backwards(peer: Peer, received: Received) -> None:
        waiting.append(received)
        if len(waiting) == 3:
            for question in reversed(waiting):
                peer.answer(question.message_id, AnswerNewOIDs([p64(question.message.num_oids)]))

    with channel_to(backwards) as (channel, _, _, _):
        tickets = [channel.ask(AskNewOIDs(n)) for n in range(3)]
        assert [channel.wait(t).oid_list for t in tickets] == [[p64(0)], [p64(1)], [p64(2)]]


def test_notifications_are_taken_while_nobody_waits() -> None:
    with channel_to(nothing) as (_, recorder, _, peer):
        for n in range(5):
            peer.send(invalidation(n))
            recorder.wait_for(lambda n=n: len(recorder.messages) == n + 1)


def test_notifications_take_effect_before_an_answer_that_follows_them() -> None:
    """Specification 1.14, 16.6."""

    def script(peer: Peer, received: Received) -> None:
        peer.connection.send(invalidation(1))
        peer.connection.send(invalidation(2))
        peer.answer(received.message_id, Pong())

    with channel_to(script) as (channel, recorder, _, _):
        channel.call(Ping())
        assert recorder.messages == [invalidation(1), invalidation(2)]


def test_what_follows_a_held_answer_waits_for_the_end_of_the_block() -> None:
    """Specification 16.6."""
    with channel_to(followed) as (channel, recorder, _, peer):
        peer.send(invalidation(0))
        other: list[object] = []
        thread = threading.Thread(target=lambda: other.append(channel.call(AskNewOIDs(1))))

        def effect(answer: object) -> None:
            assert answer == AnswerLastTransaction(p64(1))
            thread.start()
            thread.join(0.05)
            assert recorder.messages == [invalidation(0)]
            assert other == []

        hold(channel, effect)
        thread.join(PATIENCE_SECONDS)
        assert recorder.messages == [invalidation(0), invalidation(1)]
        assert other == [AnswerNewOIDs([p64(1)])]


def test_a_held_answer_is_in_order_whoever_reads_it() -> None:
    """Several threads call, and one holds: they compete for the lead."""
    done: list[int] = []
    with channel_to(followed) as (channel, recorder, _, _):
        # When an invalidation arrives, the answer before it has taken effect.
        recorder.on_message = lambda message: done.append(-int.from_bytes(message.tid, "big"))

        def alone() -> None:
            for _ in range(200):
                hold(channel, lambda answer: done.append(int.from_bytes(answer.tid, "big")))

        def call() -> None:
            for n in range(400):
                channel.call(AskNewOIDs(n))

        assert in_threads(alone, call, call, call) == [None] * 4
        channel.call(AskNewOIDs(0))
    assert done == [x for n in range(1, 201) for x in (n, -n)]


def test_tickets_with_a_sink_are_found_there() -> None:
    sink: deque[Ticket[Any]] = deque()
    with channel_to(echo) as (channel, _, _, _):
        tickets = [channel.ask(AskNewOIDs(n), Ticket(n, sink)) for n in range(3)]
        channel.wait(tickets[-1])
        assert [ticket.context for ticket in sink] == [0, 1, 2]


def test_the_end_of_the_connection_wakes_everybody_with_the_reason() -> None:
    with channel_to(nothing) as (channel, recorder, _, peer):
        tickets = [channel.ask(AskNewOIDs(n)) for n in range(4)]

        def alone() -> None:
            hold(channel, lambda answer: pytest.fail("there is no answer"))

        threading.Timer(0.05, peer.close).start()
        results = in_threads(alone, *(lambda t=t: channel.wait(t) for t in tickets))
        assert [type(r) for r in results] == [ConnectionLost] * 5
        assert str(results[0]) == "peer: closed by the peer"
        assert recorder.reasons == ["closed by the peer"]
        with pytest.raises(ConnectionLost):
            channel.call(Ping())


def test_close_wakes_a_thread_that_reads() -> None:
    with channel_to(nothing) as (channel, _, _, _):
        threading.Timer(0.05, channel.close).start()
        with pytest.raises(ConnectionLost, match="closed"):
            channel.call(Ping())


def test_a_thread_that_gets_the_lead_and_the_end_before_it_runs_is_woken_once() -> None:
    class SlowWaker:
        def __init__(self) -> None:
            self.woken = threading.Event()

        def wait(self, seconds: float) -> None:
            asleep.set()
            assert self.woken.wait(PATIENCE_SECONDS)
            assert may_run.wait(PATIENCE_SECONDS)

        def wake(self) -> None:
            self.woken.set()

    class SlowSystem(System):
        def waker(self) -> Any:
            return SlowWaker() if hasattr(slow, "yes") else super().waker()

    slow = threading.local()
    asleep, may_run = threading.Event(), threading.Event()
    waiting: list[Received] = []

    def script(peer: Peer, received: Received) -> None:
        waiting.append(received)

    with channel_to(script, system=SlowSystem(20.0)) as (channel, recorder, _, peer):

        def lead() -> None:
            channel.call(AskNewOIDs(1))

        def follow() -> None:
            slow.yes = True
            with pytest.raises(ConnectionLost):
                channel.call(AskNewOIDs(2))

        def end() -> None:
            # The leader gets its answer, hands the lead to the follower, and the connection ends.
            assert asleep.wait(PATIENCE_SECONDS)
            wait_until(lambda: any(r.message == AskNewOIDs(1) for r in waiting), "no question")
            echo(peer, next(r for r in waiting if r.message == AskNewOIDs(1)))
            leading.join(PATIENCE_SECONDS)
            channel.close()
            may_run.set()

        leading = threading.Thread(target=lead)
        leading.start()
        wait_until(lambda: channel._leader not in (None, channel._watching), "none leads")
        assert in_threads(follow, end) == [None, None]
        assert recorder.reasons == ["closed"]


def test_a_lead_that_comes_back_while_its_owner_looks_is_left_once() -> None:
    """A leader hands the lead to the owner of a held answer. The owner reads the leader's own answer
    and hands the lead back: the first thread finds its answer before it has the lead."""

    class Watched:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            if threading.current_thread() is first and channel._leader in tickets[1:]:
                wait_until(lambda: tickets[0].done, "no answer")
            if threading.current_thread() is second and tickets[0].done:
                wait_until(
                    lambda: not first.is_alive() or tickets[0] in channel._followers, "it leads on"
                )
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

        def locked(self) -> bool:
            return self.lock.locked()

    class WatchedSystem(System):
        def lock(self) -> Any:
            return Watched()

    def script(peer: Peer, received: Received) -> None:
        if isinstance(received.message, AskNewOIDs):
            echo(peer, received)
        else:
            questions.append(received.message_id)

    def alone(number: int) -> None:
        hold(channel, lambda answer: None, tickets[number])

    questions: list[int | None] = []
    tickets: list[Ticket[Any]] = [Ticket(exclusive=True), Ticket(exclusive=True)]
    first = threading.Thread(target=alone, args=(0,), daemon=True)
    second = threading.Thread(target=alone, args=(1,), daemon=True)
    with channel_to(script, system=WatchedSystem(20.0)) as (channel, _, _, peer):
        first.start()
        wait_until(lambda: channel._leader is tickets[0], "none leads")
        second.start()
        wait_until(lambda: len(questions) == 2, "no second question")
        for question in reversed(questions):
            peer.connection.answer(question, AnswerLastTransaction(p64(0)))
        peer.flush()
        for thread in (first, second):
            thread.join(PATIENCE_SECONDS)
        assert channel._leader in (None, channel._watching)
        assert channel.call(AskNewOIDs(1)) == AnswerNewOIDs([p64(1)])


def test_the_descriptor_is_given_back_at_the_end() -> None:
    with channel_to(echo) as (channel, _, _, _):
        descriptor = channel._wire.fileno()  # type: ignore[attr-defined]
        assert os.path.exists(f"/proc/self/fd/{descriptor}")
        channel.close()
        # If the watcher is reading, it closes the wire when it leaves.
        wait_until(lambda: channel._wire.fileno() == -1, "it is not closed")  # type: ignore[attr-defined]


@pytest.mark.parametrize("broken", [False, True])
def test_the_end_is_noticed_while_nobody_waits(broken: bool) -> None:
    """A peer that breaks the protocol is told."""
    reason = "Pong answers no request of this node" if broken else "closed by the peer"
    with channel_to(nothing) as (channel, recorder, _, peer):
        if broken:
            peer.answer(99, Pong())
        else:
            peer.close()
        recorder.wait_for(lambda: bool(recorder.reasons))
        assert channel.lost == reason
        if broken:
            peer.wait_for(lambda: peer.error is not None)
            assert reason in str(peer.error)


def test_ping_is_answered() -> None:
    """Specification 2.29."""
    with channel_to(nothing) as (channel, _, _, peer):
        message_id = peer.connection.ask(Ping(), None)
        peer.flush()
        peer.wait_for(lambda: Pong() in peer.received)
        assert message_id == 0


def test_a_silent_peer_is_asked_with_ping_and_then_given_up(short_ticks: None) -> None:
    with channel_to(nothing, patience=0.1) as (channel, _, _, peer):
        with pytest.raises(ConnectionLost, match="not even to Ping"):
            channel.call(AskNewOIDs(1))
        assert peer.received == [AskNewOIDs(1)] or Ping() in peer.received


def test_a_slow_peer_that_answers_ping_is_waited_for(short_ticks: None) -> None:
    waiting: list[Received] = []

    def slow(peer: Peer, received: Received) -> None:
        if isinstance(received.message, Ping):
            peer.answer(received.message_id, Pong())
            if len(peer.received) > 2:
                echo(peer, waiting[0])
        else:
            waiting.append(received)

    with channel_to(slow, patience=0.5) as (channel, _, _, _):
        assert channel.call(AskNewOIDs(1)) == AnswerNewOIDs([p64(1)])


def test_a_deadline_ends_the_wait(short_ticks: None) -> None:
    with channel_to(nothing) as (channel, _, _, _):
        ticket = channel.ask(AskNewOIDs(1))
        with pytest.raises(TimeoutError):
            channel.wait(ticket, time.monotonic() + 0.01)


def test_a_forgotten_ticket_does_not_keep_the_watcher_away() -> None:
    with channel_to(nothing) as (channel, recorder, _, peer):
        channel.forget(channel.ask(AskNewOIDs(1)))
        peer.send(invalidation(1))
        recorder.wait_for(lambda: recorder.messages == [invalidation(1)])


@pytest.mark.parametrize("place", ["encode", "receive"])
def test_a_thread_without_memory_fails_alone(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is short while a question is encoded, or while a message for another thread is decoded."""
    short = threading.local()
    encode, match = codec.encode, connection.match

    def encode_or_fail(message_id: int, message: Message) -> bytes:
        if hasattr(short, "encode"):
            raise MemoryError
        return encode(message_id, message)

    def match_or_fail(known: dict[int | None, Question], packet: Packet) -> Received:
        if hasattr(short, "receive"):
            del short.receive
            raise MemoryError
        return match(known, packet)

    def script(peer: Peer, received: Received) -> None:
        questions.append(received)
        if received.message == AskNewOIDs(2):
            for question in questions:
                echo(peer, question)

    questions: list[Received] = []
    monkeypatch.setattr(connection, "encode", encode_or_fail)
    monkeypatch.setattr(inbox, "match", match_or_fail)
    with channel_to(script) as (channel, recorder, _, peer):
        first = channel.ask(AskNewOIDs(1))
        other = channel.ask(AskNewOIDs(2)) if place == "receive" else None

        def fail() -> None:
            setattr(short, place, True)
            with pytest.raises(MemoryError):
                channel.wait(other) if other is not None else channel.call(AskNewOIDs(3))

        assert in_threads(fail) == [None]
        if other is None:
            other = channel.ask(AskNewOIDs(2))
        results = in_threads(lambda: channel.wait(first), lambda: channel.wait(other))
        assert results == [AnswerNewOIDs([p64(1)]), AnswerNewOIDs([p64(2)])]
        assert channel.lost is None and recorder.reasons == []


def test_a_handler_of_a_signal_may_raise_what_looks_like_a_lost_connection() -> None:
    """TimeoutError is an OSError: the alarm is raised while the kernel waits for bytes."""

    class Alarmed(SocketWire):
        def receive(self, portions: list[bytes], wait: bool) -> bool:
            if wait and not alarms:
                alarms.append(True)
                raise TimeoutError("of the application")
            return super().receive(portions, wait)

    alarms: list[bool] = []
    with channel_to(echo, wire=Alarmed) as (channel, _, _, _):
        with pytest.raises(TimeoutError, match="of the application"):
            while not alarms:  # the watcher, woken by the handshake, may read the first answer
                channel.call(AskNewOIDs(1))
        assert channel.call(AskNewOIDs(2)) == AnswerNewOIDs([p64(2)])


def test_a_request_is_sent_on_where_an_exception_interrupted_it() -> None:
    """The kernel had taken some bytes of the request."""
    alarms: list[int] = []

    class Slow:
        """A socket that takes some bytes before a signal arrives."""

        def __init__(self, sock: Any) -> None:
            self._sock = sock

        def send(self, data: bytes, *flags: int) -> int:
            if not flags and len(alarms) < 8 and len(data) > 3:
                alarms.append(len(data))
                if len(alarms) % 2:
                    raise KeyError("a signal")
                return int(self._sock.send(data[:3]))
            return int(self._sock.send(data, *flags))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sock, name)

    with channel_to(echo) as (channel, _, _, peer):
        channel.call(AskNewOIDs(7))
        channel._wire._sock = Slow(channel._wire._sock)  # type: ignore[attr-defined]
        for n in range(5):
            ticket: Ticket[Any] = Ticket()
            try:
                channel.ask(AskNewOIDs(n), ticket)
            except KeyError:
                assert ticket.sent
        assert channel.call(AskNewOIDs(9)) == AnswerNewOIDs([p64(9)])
        assert [m.num_oids for m in peer.received] == [7, 0, 1, 2, 3, 4, 9]


def leave_the_lead_behind(channel: Channel) -> None:
    """Two exceptions have this effect, the second one while the thread hands the lead on."""
    gone: Ticket[Any] = Ticket()
    with channel.presence(gone):
        pass

    def left() -> bool:
        with channel._mutex:
            if channel._leader is not None:
                return False  # the watcher reads the handshake
            if channel._armed:
                channel._armed = False
                channel._watch.disarm()
            channel._leader = gone
            return True

    wait_until(left, "something is left")


def test_a_leader_that_is_gone_is_replaced_by_a_thread_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "SWEEP_SECONDS", 10 * PATIENCE_SECONDS)
    with channel_to(echo) as (channel, _, _, _):
        leave_the_lead_behind(channel)
        assert in_threads(lambda: channel.call(AskNewOIDs(1))) == [AnswerNewOIDs([p64(1)])]


def test_a_leader_that_is_gone_is_replaced_by_the_watcher() -> None:
    with channel_to(echo) as (channel, recorder, _, peer):
        leave_the_lead_behind(channel)
        peer.send(invalidation(1))
        recorder.wait_for(lambda: recorder.messages == [invalidation(1)])


def test_an_exclusive_answer_whose_thread_is_gone_takes_effect_once_more() -> None:
    """Specification 16.13."""
    effects: list[object] = []
    with channel_to(followed) as (channel, recorder, _, _):

        def fail(answer: object) -> None:
            effects.append(answer)
            assert recorder.messages == []
            raise KeyError("the effect is not complete")

        with pytest.raises(KeyError):
            hold(channel, fail, Ticket(exclusive=True, orphan=effects.append))
        assert effects == [AnswerLastTransaction(p64(1))] * 2
        channel.call(AskNewOIDs(1))
        assert recorder.messages == [invalidation(1)]


def test_a_deadline_ends_the_wait_of_a_leader_that_reads_for_others_all_the_time() -> None:
    ends = threading.Event()

    def talk(peer: Peer) -> None:
        n = 0
        while not ends.is_set():
            n += 1
            peer.send(invalidation(n))
            time.sleep(0.001)

    with channel_to(nothing) as (channel, _, _, peer):
        ticket = channel.ask(AskNewOIDs(1))
        talker = threading.Thread(target=talk, args=[peer])
        talker.start()
        try:
            with pytest.raises(TimeoutError):
                channel.wait(ticket, time.monotonic() + 0.1)
        finally:
            ends.set()
            talker.join()
