"""A blocking connection to an admin node: one question, one answer.

``neoctl``, ``neosimple`` and tests use it in the caller's thread. It does not identify itself: any
process that reaches the port of an admin node administers the cluster (specification 17.2).
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from types import TracebackType

from neo.net.connection import Connection
from neo.net.sockets import READ_SIZE, configure, format_address
from neo.net.tls import TlsLink
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer, HandshakeError, PeerError, StrangerError
from neo.protocol.packets import ANSWERS, A, Address, Error, Message, Ping, Request

#: Default timeout: enough for a verb that waits for the storage nodes.
TIMEOUT_SECONDS = 30.0
BROKEN_HINT = "look at its log; do both sides use TLS, or none?"
ADDRESS_HINT = "give the address of neoadmin with --address"


class AdminAway(Exception):
    """The admin node, or the cluster behind it, cannot answer. The message says what to do."""


class AdminClient:
    """Context manager. ``timeout``: seconds of connecting, and of each question."""

    def __init__(
        self,
        address: Address,
        tls: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """Connect. Raises AdminAway."""
        self._address = address
        self._tls = tls
        self._name = f"admin node {format_address(address)}"
        self._timeout = timeout
        self._connect()

    def _connect(self) -> None:
        self._connection = Connection(server=False)
        self._link = None if self._tls is None else TlsLink(self._tls, server=False)
        try:
            self._socket = socket.create_connection(self._address, self._timeout)
            try:
                configure(self._socket)
                if self._link is not None:
                    self._write(self._link.start())
            except OSError:
                self._socket.close()
                raise
        except OSError as e:
            raise AdminAway(
                f"{self._name} cannot be reached ({e.strerror or e}): start neoadmin, "
                "or give its address with --address"
            ) from None

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def reconnect(self) -> None:
        """Connect anew to the same admin node. Raises AdminAway; so do questions then."""
        self.close()
        self._connect()

    def close(self) -> None:
        self._connection.close()
        if self._link is not None:
            with suppress(OSError):  # the peer closed first
                self._write(self._link.farewell())
        self._socket.close()

    def ask(self, message: Request[A]) -> A:
        """Return the answer. Raises ErrorAnswer if refused, AdminAway if there is no answer."""
        self._connection.ask(message, None)
        answer = self._answer()
        if isinstance(answer, Error) and not (
            ANSWERS[type(message)] is Error and answer.code == ErrorCode.ACK.value
        ):
            if answer.message.startswith(f"unexpected {type(message).__name__} "):
                raise AdminAway(self._not_admin(answer.message))
            raise ErrorAnswer.of(answer.code, answer.message)
        # The connection matched it to the request.
        return answer  # type: ignore[return-value]

    def notify(self, message: Message) -> None:
        """Send a message that has no answer. Return when the admin node has received it."""
        self._connection.send(message)
        self.ask(Ping())

    def _answer(self) -> Message:
        deadline = time.monotonic() + self._timeout
        try:
            self._send()
            while True:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                for received in self._connection.receive(self._read()):
                    if received.question is not None:
                        return received.message
                    # An admin node sends no requests here, except Ping.
                    if not isinstance(received.message, Ping):
                        raise PeerError(f"unexpected {type(received.message).__name__}")
        except TimeoutError:
            raise AdminAway(self._silence()) from None
        except StrangerError as e:
            raise AdminAway(f"{self._name}: {e}: {ADDRESS_HINT}") from None
        except PeerError as e:
            # An error about a notification answers no question.
            foreign = "the peer says: unexpected " in str(e)
            raise AdminAway(self._not_admin(e) if foreign else f"{self._name}: {e}") from None
        except OSError as e:
            raise AdminAway(
                f"connection with {self._name} broke ({e.strerror or e}): {BROKEN_HINT}"
            ) from None

    def _not_admin(self, reason: object) -> str:
        return (
            f"{format_address(self._address)} is a NEO node, but not an admin node of this version "
            f"({reason}): {ADDRESS_HINT}"
        )

    def _silence(self) -> str:
        if self._connection.greeted:
            return (
                f"{self._name} did not answer in {self._timeout:g} s: look at its log, "
                "or wait longer with --timeout"
            )
        return (
            f"{format_address(self._address)} accepts connections, but did not greet as a NEO node "
            f"in {self._timeout:g} s: it is another program, or neoadmin hangs; {ADDRESS_HINT}, "
            "or look at its log"
        )

    def _send(self) -> None:
        data = self._connection.take_outgoing()
        self._write(data if self._link is None else self._link.encrypt(data))

    def _write(self, raw: bytes) -> None:
        if raw:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(raw)

    def _read(self) -> bytes:
        raw = self._socket.recv(READ_SIZE)
        if not raw:
            raise AdminAway(f"{self._name} closed the connection without an answer: {BROKEN_HINT}")
        if self._link is None:
            return raw
        try:
            data = self._link.decrypt(raw)
        except HandshakeError:
            with suppress(OSError):  # the peer closed first
                self._write(self._link.farewell())
            raise
        self._write(self._link.outgoing())
        return data
