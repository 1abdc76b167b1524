"""A blocking peer that sends arbitrary bytes to a real process."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from neo.net.connection import HANDSHAKE
from neo.protocol.codec import LIMIT_PEER, Decoder, Packet, encode
from neo.protocol.packets import CODES, RESPONSE, Address, Message, Request
from tests.support.patience import PATIENCE_SECONDS


class RawPeer:
    """A socket; the handshake is optional. Use it with ``with``."""

    def __init__(self, address: Address, context: ssl.SSLContext | None = None) -> None:
        sock = socket.create_connection(address, PATIENCE_SECONDS)
        self._sock = sock if context is None else context.wrap_socket(sock)
        self._decoder = Decoder(LIMIT_PEER)
        self._handshake = b""
        self._next_id = 0

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._sock.close()

    # -- sending ---------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def say(self, message: Message) -> int:
        """Send a message, after :meth:`greet`. Return its id."""
        message_id = self._next_id
        self._next_id += 1
        self.send(encode(message_id, message))
        return message_id

    def greet(self) -> None:
        """Send and receive the handshakes."""
        self.send(HANDSHAKE)
        while len(self._handshake) < len(HANDSHAKE):
            data = self._sock.recv(len(HANDSHAKE) - len(self._handshake))
            assert data, f"closed after {self._handshake!r}"
            self._handshake += data
        assert self._handshake == HANDSHAKE

    def end_of_stream(self) -> None:
        """Shut down the sending side."""
        self._sock.shutdown(socket.SHUT_WR)

    # -- receiving -------------------------------------------------------------------------------

    def receive(self) -> Packet:
        """Return the next message. Raise EOFError when the node closes, TimeoutError when it is
        silent."""
        while True:
            packet = self._decoder.take()
            if packet is not None:
                return packet
            data = self._sock.recv(65536)
            if not data:
                raise EOFError("the node closed the connection")
            self._decoder.feed(data)

    def expect(self, kind: type[Message]) -> Any:
        """Return the next message of a type; skip others before it."""
        while True:
            message = self.receive().message
            if type(message) is kind:
                return message

    def ask(self, message: Request[Any]) -> Any:
        """Send a request and return the answer; skip other messages before it."""
        message_id = self.say(message)
        while True:
            packet = self.receive()
            if packet.message_id == message_id and _is_answer(packet):
                return packet.message

    def rest(self) -> list[Message]:
        """Return all messages until the node closes. Raise TimeoutError if it does not."""
        messages = []
        try:
            while True:
                messages.append(self.receive().message)
        except (EOFError, ConnectionResetError, ssl.SSLError):
            return messages

    def read_until_closed(self) -> bytes:
        """Return the raw bytes until the node closes."""
        received = b""
        try:
            while data := self._sock.recv(65536):
                received += data
        except (ConnectionResetError, ssl.SSLError):
            pass  # closed with bytes of ours unread
        return received


def _is_answer(packet: Packet) -> bool:
    return bool(CODES[type(packet.message)] & RESPONSE)
