"""A scripted peer: a thread at the other end of a socket that uses neo.net.connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from neo.client.host.system import SocketWire, System
from neo.net.channel import Channel
from neo.net.connection import Connection, Received
from neo.protocol.errors import PeerError
from neo.protocol.ids import p64
from neo.protocol.packets import Address, AnswerNewOIDs, AskNewOIDs, Message
from tests.support.patience import PATIENCE_SECONDS


class Peer:
    """One accepted connection. flush() sends queued messages."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.connection = Connection(server=True)
        self.connection.trust()
        self.received: list[Any] = []
        self.error: str | None = None
        self._changed = threading.Condition()
        # Tests also send from their own thread: messages leave in the order in which they were queued.
        self._lock = threading.RLock()

    def send(self, *messages: Message) -> None:
        with self._lock:
            for message in messages:
                self.connection.send(message)
            self.flush()

    def answer(self, message_id: int | None, message: Message) -> None:
        with self._lock:
            self.connection.answer(message_id, message)
            self.flush()

    def flush(self) -> None:
        with self._lock:
            self.sock.sendall(self.connection.take_outgoing())

    def heard(self, message: Message) -> None:
        with self._changed:
            self.received.append(message)
            self._changed.notify_all()

    def failed(self, error: str) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on ``received`` and ``error``."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_SECONDS)

    def close(self) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)


Script = Callable[[Peer, Received], None]


class Server:
    """Listen, and pass each message of each connection to ``script``, in one thread per connection."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.peers: list[Peer] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()[:2]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.serve(sock)

    def serve(self, sock: socket.socket) -> Peer:
        peer = Peer(sock)
        self.peers.append(peer)
        thread = threading.Thread(target=self._serve, args=(peer,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return peer

    def _serve(self, peer: Peer) -> None:
        try:
            peer.flush()
            while data := peer.sock.recv(1 << 16):
                for received in peer.connection.receive(data):
                    peer.heard(received.message)
                    self.script(peer, received)
        except (OSError, PeerError) as e:
            peer.failed(str(e))

    def close_listener(self) -> None:
        """Accept no more connections. Idempotent."""
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def close(self) -> None:
        """End all connections. Idempotent."""
        self.close_listener()
        for peer in self.peers:
            try:
                peer.close()
            except OSError:
                pass  # the client closed first
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        for peer in self.peers:
            peer.sock.close()


def echo(peer: Peer, received: Received) -> None:
    """Answer AskNewOIDs(n) with the oid n."""
    if isinstance(received.message, AskNewOIDs):
        peer.answer(received.message_id, AnswerNewOIDs([p64(received.message.num_oids)]))


def nothing(peer: Peer, received: Received) -> None:
    pass


class Recorder:
    """A handler of a channel that keeps messages and lets tests wait for them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reasons: list[str] = []
        self.changed = threading.Condition()
        self.on_message: Callable[[Any], Any] = lambda message: None

    def notified(self, channel: Channel, message: Message) -> None:
        self.on_message(message)
        with self.changed:
            self.messages.append(message)
            self.changed.notify_all()

    def lost(self, channel: Channel, reason: str) -> None:
        with self.changed:
            self.reasons.append(reason)
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_SECONDS)


@contextmanager
def channel_to(
    script: Script,
    patience: float = PATIENCE_SECONDS,
    system: System | None = None,
    wire: type[SocketWire] = SocketWire,
) -> Iterator[tuple[Channel, Recorder, Server, Peer]]:
    """Yield a channel to a scripted peer, over a socket pair."""
    ours, theirs = socket.socketpair()
    server = Server(script)
    peer = server.serve(theirs)
    system = system or System(patience)
    recorder = Recorder()
    channel = Channel(system, wire(ours, None, patience), recorder, "peer", patience)
    try:
        yield channel, recorder, server, peer
    finally:
        channel.close()
        system.stop()
        server.close()


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Run functions at once. Return their results, exceptions included."""
    results: list[Any] = [None] * len(functions)

    def run(i: int) -> None:
        try:
            results[i] = functions[i]()
        except Exception as e:  # noqa: BLE001 - given to the caller
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    return results
