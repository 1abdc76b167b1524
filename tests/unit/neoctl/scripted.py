"""An admin node that says what the test tells it to, on a real socket."""

from __future__ import annotations

import socket
import ssl
import threading
from types import FunctionType, TracebackType
from typing import Any

from neo.net.connection import Connection
from neo.protocol.errors import ErrorAnswer, PeerError
from neo.protocol.packets import (
    ANSWERS,
    Address,
    Error,
    FlushLog,
    Message,
    Ping,
    Pong,
)
from tests.support.patience import PATIENCE_SECONDS


class ScriptedAdmin:
    """``answers``: by type of the question, a message, an ErrorAnswer, the text of an ACK, a function
    from the question to one of these, or None to close instead.

    ``asked``: all that came, in order.
    """

    def __init__(
        self, answers: dict[type[Message], Any], tls: ssl.SSLContext | None = None
    ) -> None:
        self.answers = answers
        self.asked: list[Message] = []
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_SECONDS)
        self.address: Address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve)

    @property
    def name(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def __enter__(self) -> ScriptedAdmin:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Wakes the accepting thread.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                sock.settimeout(PATIENCE_SECONDS)
                try:
                    if self._tls is None:
                        self._talk(sock)
                    else:
                        with self._tls.wrap_socket(sock, server_side=True) as wrapped:
                            self._talk(wrapped)
                except (OSError, ssl.SSLError, PeerError):
                    continue  # tests want visitors that leave, or that speak something else

    def _talk(self, sock: socket.socket) -> None:
        connection = Connection(server=True)
        sock.sendall(connection.take_outgoing())
        while True:
            data = sock.recv(65536)
            if not data:
                return
            for message_id, message, _ in connection.receive(data):
                self.asked.append(message)
                if isinstance(message, FlushLog):
                    continue
                answer = Pong() if isinstance(message, Ping) else self.answers[type(message)]
                if isinstance(answer, FunctionType):
                    answer = answer(message)
                if answer is None:
                    return
                if isinstance(answer, ErrorAnswer):
                    answer = Error(answer.code.value, answer.message)
                elif isinstance(answer, str):
                    assert ANSWERS[type(message)] is Error
                    answer = Error(0, answer)
                connection.answer(message_id, answer)
            sock.sendall(connection.take_outgoing())
