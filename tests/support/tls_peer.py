"""A TLS peer that distinguishes a stream that was closed from one that was cut."""

from __future__ import annotations

import socket
import ssl
import threading

from neo.net.connection import Connection
from neo.protocol.packets import Address, Pong
from tests.support.patience import PATIENCE_SECONDS


class TlsPeer:
    """Context manager that answers the Pings of one peer. Afterwards ``end`` is None if the stream was
    closed as TLS requires, else the error."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.end: Exception | None = AssertionError("the stream did not end")
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_SECONDS)
        self.address: Address = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> TlsPeer:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._thread.join(PATIENCE_SECONDS)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        try:
            plain, _ = self._listener.accept()
            plain.settimeout(PATIENCE_SECONDS)
            with self._context.wrap_socket(
                plain, server_side=True, suppress_ragged_eofs=False
            ) as sock:
                connection = Connection(server=True)
                sock.sendall(connection.take_outgoing())
                while data := sock.recv(65536):
                    for received in connection.receive(data):
                        connection.answer(received.message_id, Pong())
                    sock.sendall(connection.take_outgoing())
            self.end = None
        except OSError as e:
            self.end = e
