"""The world of a client in a process that runs on gevent (``gevent.monkey.patch_all()``).

There threads are greenlets of one real thread, and whatever blocks must let the others run. gevent
replaces locks, threads, the clock and ``select.poll``. Its sockets know no time limit of the kernel and
no MSG_DONTWAIT, and it takes ``select.epoll`` away. So the client keeps original sockets and the original
epoll, never blocks on them, and waits with gevent's ``select.poll``.
"""

from __future__ import annotations

import select
import socket
import sys
from typing import Any

from neo.client.errors import ConfigurationError
from neo.client.system import TICK_SECONDS, SocketWire, System, Watcher
from neo.net.tls import TlsLink

#: What gevent must replace, if it replaces anything.
MODULES = ("socket", "threading", "select", "time")


def make_system(patience: float) -> System:
    """Return the host of a new client. Raises ConfigurationError if gevent replaced only a part of what
    blocks: one greenlet that waits would stop all."""
    monkey: Any = sys.modules.get("gevent.monkey")
    patched = [] if monkey is None else list(filter(monkey.is_module_patched, MODULES))
    if not patched:
        return System(patience)
    missing = [module for module in MODULES if module not in patched]
    if missing:
        raise ConfigurationError(
            f"gevent has replaced {', '.join(patched)}, but not {', '.join(missing)}: call"
            " gevent.monkey.patch_all() first thing in the process, and without exceptions"
        )
    return GreenSystem(patience, monkey)


def _wait(fd: int, event: int, seconds: float | None) -> bool:
    """Let other greenlets run until the event comes. Return False if it did not."""
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


class GreenWire(SocketWire):
    """``sock`` is an original one. Several greenlets may wait at once: one to send, one to receive."""

    def __init__(self, sock: socket.socket, tls: TlsLink | None, patience: float) -> None:
        self._patience = patience
        super().__init__(sock, tls, patience)
        sock.setblocking(False)

    def receive(self, wait: bool) -> bytes | None:
        data = super().receive(False)
        if data is None and wait and _wait(self._sock.fileno(), select.POLLIN, TICK_SECONDS):
            data = super().receive(False)
        return data

    def _transmit(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                if not _wait(self._sock.fileno(), select.POLLOUT, self._patience):
                    raise TimeoutError("the peer does not read") from None
            except (BrokenPipeError, ConnectionResetError):
                return  # as for threads


class GreenWatcher(Watcher):
    """A greenlet. ``epoll`` is the original one, which is never waited on."""

    def wait(self) -> list[tuple[int, int]]:
        _wait(self.epoll.fileno(), select.POLLIN, None)
        return self.epoll.poll(0)


class GreenSystem(System):
    """``monkey`` is gevent's module of that name."""

    def __init__(self, patience: float, monkey: Any) -> None:
        super().__init__(patience)
        self._monkey = monkey

    def wire(self, sock: socket.socket, tls: TlsLink | None, patience: float) -> SocketWire:
        original = self._monkey.get_original("socket", "socket")(fileno=sock.detach())
        try:
            return GreenWire(original, tls, patience)
        except BaseException:
            original.close()
            raise

    def watcher(self) -> Watcher:
        return GreenWatcher(self._monkey.get_original("select", "epoll")())
