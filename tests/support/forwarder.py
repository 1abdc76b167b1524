"""A mapped port: connections to it are forwarded to another port, as by a router."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.support.patience import PATIENCE_SECONDS


class Forwarder:
    """Forwards ``address`` to ``target``, as (host, port), with two threads per connection."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        #: Number of forwarded connections.
        self.count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    def close(self) -> None:
        for sock in [self._listener, *self._sockets]:
            with suppress(OSError):  # it may be closed already
                sock.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(PATIENCE_SECONDS)
        for sock in [self._listener, *self._sockets]:
            sock.close()

    def _spawn(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                front, _ = self._listener.accept()
                try:
                    back = socket.create_connection(self.target)
                except OSError:
                    front.close()  # the target does not listen
                    continue
                self.count += 1
                self._sockets += [front, back]
                self._spawn(self._pass_on, front, back)
                self._spawn(self._pass_on, back, front)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):  # one side has ended: end the other side, too
            while data := source.recv(1 << 16):
                target.sendall(data)
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
