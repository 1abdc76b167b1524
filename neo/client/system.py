"""The real world of a client: sockets, locks, threads and the clock (:mod:`neo.net.host`)."""

from __future__ import annotations

import logging
import os
import random
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager

from neo.net.fault_sites import FaultSite
from neo.net.host import Served, Watch, Wire
from neo.net.logfiles import reopen
from neo.net.sockets import READ_SIZE, configure, format_address
from neo.net.tls import TlsLink
from neo.protocol.errors import HandshakeError
from neo.protocol.packets import Address

logger = logging.getLogger("neo.client")

#: How often a thread that waits for bytes looks at the clock.
TICK_SECONDS = 1.0
#: A dial that neither succeeds nor fails ends here.
DIAL_SECONDS = 10.0


class SocketWire:
    """A blocking socket. The kernel ends each wait after a tick, at no cost while bytes come."""

    def __init__(self, sock: socket.socket, tls: TlsLink | None, patience: float) -> None:
        self._sock = sock
        self._tls = tls
        self._tls_lock = threading.Lock()
        sock.setblocking(True)
        _limit(sock, socket.SO_RCVTIMEO, TICK_SECONDS)
        # A peer that does not read for so long is not alive.
        _limit(sock, socket.SO_SNDTIMEO, patience)
        if tls is not None:
            sock.sendall(tls.start())

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, data: bytes) -> None:
        if self._tls is None:
            self._transmit(data)
        else:
            with self._tls_lock:
                self._transmit(self._tls.encrypt(data))

    def _transmit(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except BlockingIOError:
            raise TimeoutError("the peer does not read") from None
        except (BrokenPipeError, ConnectionResetError):
            pass  # it may have said why: whoever receives reads that, and then the end

    def receive(self, wait: bool) -> bytes | None:
        try:
            data = self._sock.recv(READ_SIZE, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        if self._tls is None or not data:
            return data
        try:
            plain = self._tls.decrypt(data)
        except HandshakeError:
            self._say_goodbye()
            raise
        if self._tls.pending:
            with self._tls_lock:
                self._transmit(self._tls.outgoing())
        return plain or None

    def _say_goodbye(self) -> None:
        """Tell a peer with TLS that this is the end, unless a thread is just sending to it."""
        if self._tls is None or not self._tls_lock.acquire(blocking=False):
            return
        try:
            self._sock.send(self._tls.farewell(), socket.MSG_DONTWAIT)
        except OSError:
            pass  # the peer was first, or does not read
        finally:
            self._tls_lock.release()

    def end(self) -> None:
        self._say_goodbye()
        # Unlike close(), this wakes up the threads inside recv() and send().
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was first

    def close(self) -> None:
        self._sock.close()


def _limit(sock: socket.socket, option: int, seconds: float) -> None:
    whole = int(seconds)
    sock.setsockopt(
        socket.SOL_SOCKET, option, struct.pack("ll", whole, int((seconds - whole) * 1e6))
    )


class LockWaker:
    """A lock that is taken at birth: one acquire to sleep, one release to wake."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self) -> None:
        self._lock.acquire()

    def wake(self) -> None:
        self._lock.release()


class EpollWatch:
    """One descriptor in the watcher's epoll, armed for one event at a time."""

    def __init__(self, watcher: Watcher, fd: int, served: Served) -> None:
        self._watcher = watcher
        self._fd = fd
        watcher.add(fd, served)

    def arm(self) -> None:
        self._watcher.epoll.modify(self._fd, select.EPOLLIN | select.EPOLLONESHOT)

    def disarm(self) -> None:
        # A hangup is always reported, but with this flag only once.
        self._watcher.epoll.modify(self._fd, select.EPOLLONESHOT)

    def forget(self) -> None:
        self._watcher.remove(self._fd)


class Watcher:
    """The thread that serves the channels on which nobody waits. It ends with :meth:`stop`."""

    def __init__(self, epoll: select.epoll) -> None:
        self.epoll = epoll
        self._served: dict[int, weakref.ref[Served]] = {}
        self._stop_read, self._stop_write = os.pipe()
        self.epoll.register(self._stop_read, select.EPOLLIN)
        threading.Thread(target=self._run, name="neo-client-watcher", daemon=True).start()

    def add(self, fd: int, served: Served) -> None:
        self._served[fd] = weakref.ref(served)
        self.epoll.register(fd, select.EPOLLONESHOT)

    def remove(self, fd: int) -> None:
        if self._served.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def wait(self) -> list[tuple[int, int]]:
        """Return the descriptors for which something came, and what."""
        return self.epoll.poll()

    def stop(self) -> None:
        os.write(self._stop_write, b".")

    def _run(self) -> None:
        while True:
            for fd, _ in self.wait():
                if fd == self._stop_read:
                    self._served.clear()
                    self.abandon()
                    return
                reference = self._served.get(fd)
                served = None if reference is None else reference()
                if served is not None:
                    try:
                        served.serve()
                    except Exception:
                        # That channel ended with it; the others are served on.
                        logger.exception("unexpected error in the watcher's thread")

    def abandon(self) -> None:
        """Give the descriptors back: at the end, or after a fork, when the thread is not here."""
        self.epoll.close()
        os.close(self._stop_read)
        os.close(self._stop_write)


class System:
    """The :class:`neo.net.host.Host` of real clients. One per client."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._watcher: Watcher | None = None
        self._watcher_lock = threading.Lock()
        self._random = random.Random()

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def rlock(self) -> AbstractContextManager[object]:
        return threading.RLock()

    def waker(self) -> LockWaker:
        return LockWaker()

    def choose(self, items: Sequence[int]) -> int:
        return items[int(self._random.random() * len(items))]

    def fault(self, site: FaultSite) -> bool:
        return False

    def connect(
        self, address: Address, tls: TlsLink | None, seconds: float | None = None
    ) -> SocketWire:
        try:
            sock = socket.create_connection(address, seconds or DIAL_SECONDS)
        except (ValueError, OverflowError) as e:  # of others: a host that is no name, or no port
            raise OSError(f"cannot connect to {format_address(address)}: {e}") from None
        try:
            configure(sock)
            return self.wire(sock, tls, self._patience)
        except BaseException:
            sock.close()
            raise

    def wire(self, sock: socket.socket, tls: TlsLink | None, patience: float) -> SocketWire:
        return SocketWire(sock, tls, patience)

    def watcher(self) -> Watcher:
        return Watcher(select.epoll())

    def watch(self, wire: Wire, served: Served) -> Watch:
        assert isinstance(wire, SocketWire)
        with self._watcher_lock:
            if self._watcher is None:
                self._watcher = self.watcher()
            return EpollWatch(self._watcher, wire.fileno(), served)

    def reopen_logs(self) -> None:
        """The handlers of the client's logger only: others belong to the application."""
        reopen(logging.getLogger("neo.client").handlers, logger, "neoctl flush_log")

    def stop(self) -> None:
        """End the watcher."""
        with self._watcher_lock:
            if self._watcher is not None:
                self._watcher.stop()
                self._watcher = None

    def forked(self) -> None:
        """In the child of a fork."""
        if self._watcher is not None:
            self._watcher.abandon()
        self._watcher = None
        self._watcher_lock = threading.Lock()
        self._random = random.Random()
