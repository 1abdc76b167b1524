"""Requests that wait for the next ones, and leave with one write (specification 7.67)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from neo.client import NEOStorage
from neo.client.commit.participants import HELD_BYTES
from neo.client.host import system
from neo.client.host.system import SocketWire, System
from neo.client.settings import HELD, UNANSWERED_TURN_BYTES, make_settings
from neo.net.channel import Channel
from neo.net.host import GATHERED_BYTES
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerStoreObject,
    AskCheckCurrentSerial,
    AskNewOIDs,
    AskStoreObject,
    AskStoreTransaction,
    AskVoteTransaction,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.committing import begin, finish, storing
from tests.unit.client.peers import channel_to, echo, nothing
from tests.unit.client.scripted import scripted


class Written(SocketWire):
    """Counts the messages of each write."""

    counts: list[int]

    def send(self, outgoing: list[bytes]) -> None:
        vars(self).setdefault("counts", []).append(len(outgoing))
        super().send(outgoing)


class Nobody:
    """A watch of a watcher that never looks."""

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def forget(self) -> None: ...


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only threads that wait read connections, and send what is held."""
    monkeypatch.setattr(System, "watch", lambda self, wire, watched: Nobody())


def written(channel: Channel) -> list[int]:
    wire = channel._wire
    assert isinstance(wire, Written)
    return wire.counts


def test_held_requests_leave_with_the_next_or_before_a_thread_waits(unwatched: None) -> None:
    with channel_to(echo, wire=Written) as (channel, _, _, peer):
        channel.call(AskNewOIDs(0))
        del written(channel)[:]
        tickets = [channel.ask(AskNewOIDs(n), held=2) for n in range(1, 5)]
        assert written(channel) == [3]
        assert [channel.wait(t).oid_list for t in tickets] == [[p64(n)] for n in range(1, 5)]
        assert written(channel) == [3, 1]
        last = channel.ask(AskNewOIDs(5), held=2)
        channel.send(AbortTransaction(p64(1), []))
        assert written(channel) == [3, 1, 2]
        channel.forget(last)
        channel.forget(channel.ask(AskNewOIDs(6), held=2))
        channel.flush()
        channel.flush()
        assert written(channel) == [3, 1, 2, 1]
        peer.wait_for(lambda: AskNewOIDs(6) in peer.received)
        asked = [m for m in peer.received if isinstance(m, AskNewOIDs)]
        assert asked == [AskNewOIDs(n) for n in range(7)]


def test_a_thread_that_holds_sends_for_one_that_waits_meanwhile(unwatched: None) -> None:
    """The one that waits found it at work, and cannot wait for it."""
    with channel_to(echo, wire=Written) as (channel, _, _, _):
        channel.call(AskNewOIDs(0))
        first = channel.ask(AskNewOIDs(1), held=2)
        del written(channel)[:]
        with channel._sending:
            channel.flush()
        assert written(channel) == []
        second = channel.ask(AskNewOIDs(2), held=2)
        assert written(channel) == [2]
        assert channel.wait(first).oid_list == [p64(1)] and channel.wait(second).oid_list == [p64(2)]


def test_held_requests_leave_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "SWEEP_SECONDS", 0.02)
    with channel_to(nothing) as (channel, _, _, peer):
        ticket = channel.ask(AskNewOIDs(1), held=7)
        peer.wait_for(lambda: AskNewOIDs(1) in peer.received)
        channel.forget(ticket)


@pytest.fixture
def packets() -> Iterator[tuple[SocketWire, socket.socket]]:
    """A wire, and the other end, which receives each write by itself."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    wire = SocketWire(ours, None, PATIENCE_SECONDS)
    yield wire, theirs
    wire.close()
    theirs.close()


def test_small_messages_are_one_write_and_large_ones_are_not_copied(
    packets: tuple[SocketWire, socket.socket],
) -> None:
    wire, other = packets
    outgoing = [b"1", b"23", b"4"]
    wire.send(outgoing)
    large = bytes(GATHERED_BYTES)
    wire.send([b"5", large])
    assert [other.recv(2 * GATHERED_BYTES) for _ in range(3)] == [b"1234", b"5", large]
    assert outgoing == [] and wire.flow()[0] + wire.flow()[1] >= 4


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, unwatched: None) -> None:
    monkeypatch.setattr(system, "SocketWire", Written)


def _channel(storage: NEOStorage, t: object) -> Channel:
    (channel,) = storage._begun(t)._participants.alive().values()
    return channel


def test_small_stores_are_held_while_an_earlier_one_has_no_answer(counted: None) -> None:
    with scripted([1]) as (cluster, storage):
        node = cluster.storages[1]
        node.answers[AskStoreObject] = lambda m: None
        t = storing(storage, p64(1))
        before = len(written(_channel(storage, t)))
        for n in range(2, HELD + 2):
            storage.store(p64(n), None, b"x", "", t)
        counts = written(_channel(storage, t))
        assert len(counts) == before, "one has no answer, seven are held"
        storage.store(p64(9), None, b"x", "", t)
        assert counts[before:] == [HELD + 1]
        storage.store(p64(10), None, bytes(HELD_BYTES + 1), "", t)
        assert counts[before:] == [HELD + 1, 1], "it is large"
        storage.checkCurrentSerialInTransaction(p64(11), p64(8), t)
        assert counts[before:] == [HELD + 1, 1]
        vote = threading.Thread(target=storage.tpc_vote, args=[t])
        vote.start()
        node.wait_for(AskCheckCurrentSerial)
        assert [m.oid for m in node.asked(AskStoreObject, AskCheckCurrentSerial)] == [
            p64(n) for n in range(1, 12)
        ]
        for number, message in enumerate(node.peer.received):
            if isinstance(message, AskStoreObject):
                node.peer.answer(number, AnswerStoreObject(None))
        vote.join(PATIENCE_SECONDS)
        assert not vote.is_alive() and node.asked(AskStoreTransaction, AskVoteTransaction)
        storage.tpc_finish(t)


def test_nothing_is_held_while_the_node_has_answered(counted: None) -> None:
    with scripted([1]) as (cluster, storage):
        node = cluster.storages[1]
        t = begin(storage)
        for n in range(1, 4):
            storage.store(p64(n), None, b"x", "", t)
            node.wait_for(AskStoreObject, count=n)
            storage._begun(t).settle()
        finish(storage, t)


def test_what_is_held_is_forgotten_with_an_abort(counted: None) -> None:
    """The node hears of it, and then that it is over: no lock is left."""
    with scripted([1]) as (cluster, storage):
        node = cluster.storages[1]
        node.answers[AskStoreObject] = lambda m: None
        t = storing(storage, p64(1))
        storage.store(p64(2), None, b"x", "", t)
        storage.tpc_abort(t)
        node.wait_for(AbortTransaction)
        kinds = [type(m) for m in node.asked(AskStoreObject, AbortTransaction)]
        assert kinds == [AskStoreObject, AskStoreObject, AbortTransaction]


def test_where_client_and_node_take_turns_bytes_are_the_bound() -> None:
    turns, usual = (
        make_settings("127.0.0.1:1", "c", 1, None, (None, None, None), True, 1 << 20, turns=turns)
        for turns in (True, False)
    )
    assert (turns.unanswered_max, usual.unanswered_max) == (UNANSWERED_TURN_BYTES, 4 << 20)
    assert turns.held > usual.held == HELD
