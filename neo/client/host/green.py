"""The host of a client in a process that runs on gevent (``gevent.monkey.patch_all()``).

Threads are then greenlets of one real thread, and each blocking call must let the others run. gevent
replaces locks, threads and the clock. Its sockets support neither kernel timeouts nor MSG_DONTWAIT, and
it removes ``select.epoll``. So the client uses the original sockets and the original epoll, never
blocks on them, and waits in gevent's loop until they are ready.

After a fork all greenlets continue in the child. The client's greenlets must not wait for a descriptor
that was closed there, so their events are closed first; like threads, they then do nothing more.
"""

from __future__ import annotations

import select
import socket
import sys
from typing import Any

from neo.client.errors import ConfigurationError
from neo.client.host.system import (
    SWEEP_SECONDS,
    TICK_SECONDS,
    SocketWire,
    System,
    Watcher,
)
from neo.net.tls import TlsLink

#: Modules that gevent must replace if it replaces any.
MODULES = ("socket", "threading", "select", "time")
#: Events of gevent's loop.
READ, WRITE = 1, 2


def make_system(patience: float) -> System:
    """Return the host of a new client.

    Raise ConfigurationError if gevent replaced only some of the blocking modules, because one greenlet
    that waits would stop all others.
    """
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
    return GreenSystem(patience, sys.modules["gevent"], monkey)


class Event:
    """Readiness of one descriptor. One greenlet at a time may wait for it."""

    def __init__(self, gevent: Any, fd: int, event: int) -> None:
        self._gevent = gevent
        self._io = gevent.get_hub().loop.io(fd, event)

    def wait(self, seconds: float | None) -> bool:
        """Let other greenlets run until the descriptor is ready. Return False after the timeout."""
        came = False
        with self._gevent.Timeout(seconds, False):
            self._gevent.get_hub().wait(self._io)
            came = True
        return came

    def close(self) -> None:
        """Stop watching, before the descriptor is closed. Wakes no waiting greenlet. Idempotent."""
        self._io.close()


class GreenWire(SocketWire):
    """A wire for greenlets. ``sock`` is an original socket, not gevent's."""

    def __init__(
        self, gevent: Any, sock: socket.socket, tls: TlsLink | None, patience: float
    ) -> None:
        self._patience = patience
        self._readable = Event(gevent, sock.fileno(), READ)
        self._writable = Event(gevent, sock.fileno(), WRITE)
        super().__init__(sock, tls, patience)
        sock.setblocking(False)

    def receive(self, portions: list[bytes], wait: bool) -> bool:
        came = super().receive(portions, False)
        if not came and wait and self._readable.wait(TICK_SECONDS):
            came = super().receive(portions, False)
        return came

    def _room(self) -> bool:
        return self._writable.wait(self._patience)

    def close(self) -> None:
        self._readable.close()
        self._writable.close()
        super().close()


class GreenWatcher(Watcher):
    """A watcher in a greenlet. It polls the original ``epoll`` and never waits on it."""

    def __init__(self, gevent: Any, epoll: select.epoll) -> None:
        self._ready = Event(gevent, epoll.fileno(), READ)
        super().__init__(epoll)

    def wait(self) -> list[tuple[int, int]]:
        self._ready.wait(SWEEP_SECONDS)
        return self.epoll.poll(0)

    def abandon(self) -> None:
        self._ready.close()
        super().abandon()


class GreenSystem(System):
    """The host of one client on gevent. ``gevent``, ``monkey``: the modules."""

    def __init__(self, patience: float, gevent: Any, monkey: Any) -> None:
        super().__init__(patience)
        self._gevent = gevent
        self._monkey = monkey

    def wire(self, sock: socket.socket, tls: TlsLink | None, patience: float) -> SocketWire:
        original = self._monkey.get_original("socket", "socket")(fileno=sock.detach())
        try:
            return GreenWire(self._gevent, original, tls, patience)
        except BaseException:
            original.close()
            raise

    def watcher(self) -> Watcher:
        return GreenWatcher(self._gevent, self._monkey.get_original("select", "epoll")())
