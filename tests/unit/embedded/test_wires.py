"""The connection of a client with a node of the same process: bytes, back-pressure, the end."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pytest

from neo.embedded.wires import ClientLink, LocalWatch, LocalWire
from neo.net.host import GATHERED_BYTES
from neo.node.backlog import SLOW_BYTES


class Loop:
    """Runs events when the test says so."""

    def __init__(self) -> None:
        self._events: SimpleQueue[Any] = SimpleQueue()
        self.put = self._events.put

    def run(self) -> None:
        while not self._events.empty():
            function, argument = self._events.get()
            function(argument)


class Peer:
    """Notes what the link tells."""

    def __init__(self) -> None:
        self.link: ClientLink | None = None
        self.told: list[Any] = []

    def received(self, data: bytes) -> None:
        self.told.append(data)

    def slow(self) -> None:
        self.told.append("slow")

    def drained(self) -> None:
        self.told.append("drained")

    def lost(self, reason: str) -> None:
        self.told.append(f"lost: {reason}")


class Served:
    def serve(self) -> None: ...

    def sweep(self) -> None: ...


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def wire(loop: Loop, peer: Peer) -> LocalWire:
    wire = LocalWire(loop)  # type: ignore[arg-type]
    wire.link.attach(peer)  # type: ignore[arg-type]
    return wire


def received(wire: LocalWire) -> list[bytes]:
    portions: list[bytes] = []
    while wire.receive(portions, wait=False):
        pass
    return portions


def test_messages_reach_the_node_once_and_in_order(wire: LocalWire, loop: Loop, peer: Peer) -> None:
    outgoing = [b"1", b"23"]
    wire.send(outgoing)
    assert outgoing == [] and wire.flow() == (0, 3)
    loop.run()
    assert peer.told == [b"123"] and wire.flow() == (3, 0), "at once"
    outgoing = [b"4", bytes(GATHERED_BYTES)]
    wire.send(outgoing)
    loop.run()
    assert peer.told[1:] == [b"4", bytes(GATHERED_BYTES)], "nothing large is copied"


def test_a_message_that_was_sent_before_an_exception_is_not_sent_again(
    wire: LocalWire, loop: Loop, peer: Peer
) -> None:
    """The exception comes after the put, and before the message is deleted."""
    outgoing = [b"1", b"2"]
    wire._done.append(None)
    wire.send(outgoing)
    loop.run()
    assert peer.told == [b"2"]


def test_a_node_that_reads_no_more_finds_later_what_came(wire: LocalWire, loop: Loop, peer: Peer) -> None:
    wire.link.pause_reading()
    wire.send([b"1"])
    loop.run()
    wire.link.resume_reading()
    wire.send([b"2"])
    loop.run()
    assert peer.told == [b"1", b"2"]


def test_a_client_that_does_not_read_is_slow_until_it_has_read(
    wire: LocalWire, loop: Loop, peer: Peer
) -> None:
    wire.link.write(bytes(SLOW_BYTES))
    assert peer.told == [] and wire.link.unsent == SLOW_BYTES
    wire.link.write(b"1")
    assert peer.told == ["slow"]
    assert sum(map(len, received(wire))) == SLOW_BYTES + 1
    assert wire.link.unsent == 0
    loop.run()
    assert peer.told == ["slow", "drained"]


def test_the_end_of_either_side_is_told_to_the_other(wire: LocalWire, loop: Loop, peer: Peer) -> None:
    wire.link.write(b"last words")
    wire.link.close()
    wire.link.write(b"nothing")
    assert received(wire) == [b"last words", b""]

    other = LocalWire(loop)  # type: ignore[arg-type]
    other.link.attach(peer)  # type: ignore[arg-type]
    other.end()
    other.close()
    assert b"" in received(other), "a thread that receives is woken"
    loop.run()
    assert peer.told == ["lost: closed by the peer"]


def test_an_armed_watch_tells_once_also_of_what_came_before(wire: LocalWire) -> None:
    told: list[LocalWatch] = []
    served = Served()

    class Watches:
        def put(self, watch: LocalWatch, /) -> None:
            told.append(watch)

    watch = LocalWatch(wire, served, Watches())
    wire.link.write(b"1")
    assert told == []
    watch.arm()
    assert told == [watch] and watch.watched() is served
    wire.link.write(b"2")
    assert told == [watch]
    received(wire)
    watch.arm()
    watch.disarm()
    wire.link.write(b"3")
    assert told == [watch]
    watch.forget()
    assert watch.watched() is None
