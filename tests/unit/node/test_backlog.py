"""Flow control: who does not read waits, and nobody else; everybody has the loop for a turn."""

from __future__ import annotations

import gc
import weakref

import pytest

from neo.net.connection import HANDSHAKE
from neo.node import backlog
from neo.node import peer as peer_module
from neo.node.backlog import Backlog
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.codec import encode
from neo.protocol.packets import (
    AnswerLastTransaction,
    AnswerObject,
    AskFinalTID,
    AskLastTransaction,
    AskObject,
    Message,
    NotifyReady,
)
from tests.support.remote import FakeHost, Remote

ID = bytes(8)
MB = 1 << 20


class Loads(Handler):
    """An object has as many bytes as its oid says."""

    def __init__(self) -> None:
        self.loaded: list[int] = []
        self.jobs: list[tuple[Peer, int]] = []
        self.notified = 0
        self.busy = 0.0

    @on(AskObject)
    def load(self, peer: Peer, message_id: int, m: AskObject) -> Message:
        size = int.from_bytes(m.oid, "big")
        self.loaded.append(size)
        return AnswerObject(m.oid, ID, None, 0, bytes(20), bytes(size), None)

    @on(AskFinalTID)
    def job(self, peer: Peer, message_id: int, m: AskFinalTID) -> None:
        peer.begin_job()
        self.jobs.append((peer, message_id))

    @on(AskLastTransaction)
    def slow(self, peer: Peer, message_id: int, m: AskLastTransaction) -> Message:
        self.busy += 0.004
        return AnswerLastTransaction(ID)

    @on(NotifyReady)
    def ready(self, peer: Peer, message_id: int, m: NotifyReady) -> None:
        self.notified += 1


class Server(Core):
    def __init__(self, host: FakeHost) -> None:
        super().__init__(host)
        self.handler = Loads()

    def stranger_handler(self) -> Handler:
        return self.handler


class Remotes:
    """A server, and peers that read only when they are told to."""

    def __init__(self) -> None:
        self.host = FakeHost()
        self.core = self.host.core = Server(self.host)
        self.handler = self.core.handler

    def connect(self) -> Lazy:
        return Lazy(self.core)

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self.host.advance(0)


class Lazy(Remote):
    """Keeps what is written until it reads; the link behaves as a transport."""

    def __init__(self, core: Core) -> None:
        super().__init__(core.accepted(("127.0.0.1", 9)), server=False)
        self.kept: list[bytes] = []
        core.flush()

    def write(self, data: bytes) -> None:
        self.kept.append(data)
        was, self.unsent = self.unsent, self.unsent + len(data)
        if was <= backlog.SLOW_BYTES < self.unsent:
            self.peer.slow()

    def read(self) -> None:
        was, self.unsent = self.unsent, 0
        data, self.kept = b"".join(self.kept), []
        super().write(data)
        if was > backlog.SLOW_BYTES:
            self.peer.drained()

    def load(self, *sizes: int) -> None:
        """Many requests in one write."""
        for size in sizes:
            self.connection.ask(AskObject(size.to_bytes(8, "big"), None, None), _Nothing())
        self._flush()

    def sizes(self) -> list[int]:
        return [len(m.data) for m in self.received if isinstance(m, AnswerObject)]


class _Nothing:
    """Takes an answer."""

    def resolve(self, message: Message) -> None:
        pass

    fail = resolve


@pytest.fixture
def remotes() -> Remotes:
    return Remotes()


def test_requests_are_not_executed_while_their_answers_are_not_read(remotes: Remotes) -> None:
    """Specification 2.40."""
    lazy = remotes.connect()
    lazy.load(*range(5 * MB, 5 * MB + 50))
    remotes.turn(20)
    assert remotes.handler.loaded == [5 * MB], "one answer is above the share"
    assert lazy.paused
    for expected in range(2, 51):
        lazy.read()
        remotes.turn()
        assert len(remotes.handler.loaded) == expected
    lazy.read()
    remotes.turn()
    assert not lazy.paused
    assert lazy.sizes() == list(range(5 * MB, 5 * MB + 50)), "all, in order"


def test_what_comes_meanwhile_waits_its_turn(remotes: Remotes) -> None:
    """Specification 2.41."""
    lazy = remotes.connect()
    lazy.load(6 * MB, 1)
    lazy.load(2, 3)
    remotes.turn()
    assert remotes.handler.loaded == [6 * MB]
    lazy.read()
    remotes.turn(2)
    lazy.read()
    assert lazy.sizes() == [6 * MB, 1, 2, 3]
    assert not lazy.paused
    lazy.load(4)
    assert remotes.handler.loaded[-1] == 4, "at once again"


def test_others_are_served_between_the_turns_of_one(remotes: Remotes) -> None:
    """Specification 2.42."""
    greedy, other = remotes.connect(), remotes.connect()
    greedy.load(*[600_000] * 10)
    assert remotes.handler.loaded == [600_000] * 2, "a megabyte is a turn"
    other.load(7)
    assert remotes.handler.loaded[-1] == 7
    while len(greedy.sizes()) < 10:
        remotes.turn()
        greedy.read()
    assert remotes.handler.loaded == [600_000] * 2 + [7] + [600_000] * 8


def test_a_turn_ends_with_its_time(remotes: Remotes) -> None:
    """Requests that cost time instead of bytes: 4 ms each, of 5 (specification 2.42)."""
    remotes.host.monotonic = lambda: remotes.handler.busy  # type: ignore[method-assign]
    busy = remotes.connect()
    for _ in range(9):
        busy.connection.ask(AskLastTransaction(), _Nothing())
    busy._flush()
    counts = []
    while len(busy.received) < 9:
        busy.read()
        counts.append(len(busy.received))
        remotes.turn()
    assert counts[0] == 3, "others come after so many"
    assert counts[-1] == 9


def test_many_slow_peers_share_what_a_node_has(
    remotes: Remotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 2.40."""
    monkeypatch.setattr(backlog, "NODE_BYTES", 8 * MB)
    monkeypatch.setattr(backlog, "PEER_BYTES", 1 * MB)
    slow = [remotes.connect() for _ in range(16)]
    for remote in slow:
        remote.load(*[100_000] * 40)
    remotes.turn(30)
    assert all(MB // 2 < remote.unsent < 2 * MB for remote in slow)
    assert slow[-1].unsent < MB // 2 + 200_000, "the last ones found the others"
    reader = remotes.connect()
    reader.load(8)
    reader.read()
    assert reader.sizes() == [8], "one that reads does not wait"
    for remote in slow[:10]:
        remote.lose()
    slow[-1].read()
    remotes.turn(30)
    assert slow[-1].unsent > MB, "with few of them, each may have more"


def test_the_slowest_goes_when_the_node_has_too_much(
    remotes: Remotes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 2.45."""
    monkeypatch.setattr(backlog, "DROP_BYTES", 3 * MB)
    caplog.set_level("INFO")
    one, other = remotes.connect(), remotes.connect()
    one.load(1 * MB)
    other.load(2 * MB - 1000)
    assert not one.closed and not other.closed
    one.load(1 * MB, 1)
    assert one.closed and not other.closed
    assert "the peer does not read: 2097" in caplog.text


def test_jobs_of_a_peer_are_few_at_a_time(remotes: Remotes) -> None:
    """Specification 2.43."""
    remote = remotes.connect()
    for _ in range(10):
        remote.connection.ask(AskFinalTID(ID), _Nothing())
    remote._flush()
    remotes.turn()
    jobs = remotes.handler.jobs
    assert len(jobs) == backlog.JOBS_BYTES // backlog.JOB_BYTES
    while jobs:
        peer, _ = jobs.pop()
        peer.end_job()
        remotes.turn()
    assert not remote.paused
    assert peer._jobs == 0


def test_reads_that_were_put_off_go_on_when_the_peer_reads(remotes: Remotes) -> None:
    remote = remotes.connect()
    remote.load(5 * MB)
    done: list[int] = []

    def read(number: int) -> None:
        done.append(number)
        remote.peer.answer(number, AnswerObject(ID, ID, None, 0, bytes(20), bytes(5 * MB), None))

    remote.connection.questions[7] = remote.connection.questions[8] = (
        remote.connection.questions[0]
    )
    for number in (7, 8):
        remote.peer.put_off(lambda number=number: read(number))
    remotes.turn()
    assert done == []
    remote.read()
    remotes.turn()
    assert done == [7]
    remotes.turn()
    assert done == [7]
    remote.read()
    remotes.turn()
    assert done == [7, 8]


# -- requests that go both ways --------------------------------------------------------------------


def test_two_that_ask_each_other_do_not_wait_for_each_other(remotes: Remotes) -> None:
    """Specification 2.44."""
    remote = remotes.connect()
    remote.peer.both_ways = True
    answer = remote.peer.ask(AskLastTransaction())
    remote.load(5 * MB, 1, 2)
    assert remotes.handler.loaded == [5 * MB]
    # It does not read, but it answers, and tells something.
    remotes.turn()
    question = next(iter(remote.peer.connection.questions))
    remote.connection.answer(question, AnswerLastTransaction(ID))
    remote.connection.send(NotifyReady())
    remote.load(3)
    remotes.turn()
    assert answer.done
    assert remotes.handler.notified == 1
    assert remotes.handler.loaded == [5 * MB], "its requests wait"
    remote.read()
    remotes.turn()
    remote.read()
    assert remote.sizes() == [5 * MB, 1, 2, 3]
    assert not remote.paused


def test_what_the_primary_master_says_does_not_wait_until_it_reads(remotes: Remotes) -> None:
    """Specification 2.44. It waits until this node reads."""
    remote = remotes.connect()
    remote.load(5 * MB, 1)
    remotes.turn()
    assert remotes.handler.loaded == [5 * MB] and remote.paused
    other = remotes.connect()
    other.peer.leads = True
    other.load(5 * MB, 1, 2)
    remotes.turn()
    assert remotes.handler.loaded[1:] == [5 * MB, 1, 2] and not other.paused


def test_requests_that_wait_aside_are_bounded(
    remotes: Remotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 2.44."""
    monkeypatch.setattr(peer_module, "ASIDE_BYTES", 1000)
    remote = remotes.connect()
    remote.peer.both_ways = True
    remote.load(5 * MB, *range(100))
    remotes.turn(2)
    assert remote.closed


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lost", "close", "drop"])
def test_nothing_that_waits_survives_the_connection(remotes: Remotes, how: str) -> None:
    """Specification 2.27."""
    remote = remotes.connect()
    remote.load(5 * MB, 1, 2, 3)
    remotes.turn()
    peer = remote.peer
    if how == "lost":
        peer.lost("gone")
    else:
        getattr(peer, how)()
    remotes.turn(2)
    assert remotes.handler.loaded == [5 * MB]
    assert not remotes.core.backlog._slow


def test_a_peer_is_free_when_its_connection_ended() -> None:
    remotes = Remotes()
    gc.collect()
    gc.disable()
    try:
        remote = remotes.connect()
        remote.load(5 * MB, 1, 2, 3)
        held = weakref.ref(remote.peer)
        remote.peer.lost("gone")
        del remote.peer  # a link that is over has no owner: see test_transport
        remotes.turn()
        remotes.turn()
        del remote
        assert held() is None
    finally:
        gc.enable()


# -- messages of which a part is here --------------------------------------------------------------


class _Sender:
    unread = 0
    trusted = True

    def lost(self, reason: str) -> None: ...


def test_incomplete_messages_of_all_peers_are_bounded() -> None:
    """Specification 2.37."""
    counted = Backlog()
    large, small = _Sender(), _Sender()
    assert counted.incomplete(large, backlog.INCOMPLETE_BYTES - 1000)
    assert counted.incomplete(small, backlog.SMALL_BYTES)
    assert counted.incomplete(small, backlog.SMALL_BYTES * 2), "the greatest goes, not this one"
    assert not counted.incomplete(large, backlog.INCOMPLETE_BYTES)
    counted.forget(large)
    assert counted.incomplete(small, backlog.INCOMPLETE_BYTES)


def test_guests_have_a_bound_of_their_own() -> None:
    """Specification 2.34, 2.37."""
    counted = Backlog()
    nodes, guest, other = _Sender(), _Sender(), _Sender()
    guest.trusted = other.trusted = False
    assert counted.incomplete(nodes, backlog.INCOMPLETE_BYTES)
    assert counted.incomplete(guest, backlog.GUESTS_BYTES // 2)
    assert counted.incomplete(other, backlog.GUESTS_BYTES // 2)
    assert not counted.incomplete(guest, backlog.GUESTS_BYTES // 2 + 1)


def test_a_node_without_room_says_so(remotes: Remotes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "INCOMPLETE_BYTES", 300_000)
    senders = [remotes.connect() for _ in range(3)]
    packet = encode(0, AnswerObject(ID, ID, None, 0, bytes(20), bytes(MB), None))
    for sender in senders:
        sender.peer.connection.trust()
        sender.peer.received(HANDSHAKE + packet[:90_000])
    assert not any(sender.closed for sender in senders)
    senders[0].peer.received(packet[90_000:200_000])
    assert [sender.closed for sender in senders] == [True, False, False]
    senders[0].read()
    assert "no room for another message" in senders[0].complaint
    # What is complete does not count any more.
    senders[1].peer.received(packet[90_000:150_000])
    assert not senders[1].closed


def test_many_small_messages_cost_nobody_the_connection() -> None:
    """Specification 2.37: each of a thousand clients may have sent a part of a request."""
    counted, large = Backlog(), _Sender()
    assert counted.incomplete(large, backlog.INCOMPLETE_BYTES)
    assert all(counted.incomplete(_Sender(), backlog.SMALL_BYTES) for _ in range(1000))
    assert counted.incomplete(large, backlog.INCOMPLETE_BYTES)
    # What a peer has sent whole, or nearly, does not count any more.
    other = _Sender()
    assert counted.incomplete(other, backlog.SMALL_BYTES + 1)
    assert not counted.incomplete(large, backlog.INCOMPLETE_BYTES)
    assert counted.incomplete(other, backlog.SMALL_BYTES)
    assert counted.incomplete(large, backlog.INCOMPLETE_BYTES)


def test_what_waits_for_another_message_is_written_while_requests_wait() -> None:
    """A turn is planned as long as something is queued: it would be planned for ever."""
    remotes = Remotes()
    lazy = remotes.connect()
    lazy.peer.begin_job(backlog.JOBS_BYTES)
    lazy.load(1)
    lazy.peer.queue(NotifyReady())
    remotes.turn()
    lazy.read()
    assert [type(m) for m in lazy.received] == [NotifyReady]
    lazy.peer.end_job(backlog.JOBS_BYTES)
    remotes.turn(2)
    lazy.read()
    assert lazy.sizes() == [1]
