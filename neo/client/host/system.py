"""The :class:`~neo.net.host.ThreadHost` of real clients: sockets, locks, threads and the clock."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import select
import socket
import struct
import termios
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

from neo.net.fault_sites import FaultSite
from neo.net.host import DirectReads, Lock, Watch, Watched, Wire, gather
from neo.net.logfiles import reopen
from neo.net.sockets import READ_SIZE, configure, format_address
from neo.net.tls import TlsLink
from neo.protocol.errors import HandshakeError
from neo.protocol.packets import Address

logger = logging.getLogger("neo.client")

#: A thread that waits for bytes checks its deadline, and whether the peer is silent, at this interval.
TICK_SECONDS = 0.25
#: The watcher checks all channels at this interval. A thread leaves a channel without a reader if a
#: second exception hits it while it handles the first one.
SWEEP_SECONDS = 0.5
#: Timeout of a dial.
DIAL_SECONDS = 10.0


class SocketWire:
    """A blocking socket. The kernel ends each wait after a tick; while bytes arrive, this costs nothing.

    A system call that an exception interrupts has moved no byte. The result of any other system call is
    stored by the instruction that calls it (``extend(map(call, …))``), because the interpreter raises
    exceptions from outside only between instructions (:mod:`neo.net.channel`).

    The computations of TLS have no such instruction. They do not block; an exception that comes during
    one ends the connection.
    """

    def __init__(self, sock: socket.socket, tls: TlsLink | None, patience: float) -> None:
        self._sock = sock
        self._counts: list[int] = []  # sizes of the parts of the first message that were sent
        self._sent = 0  # bytes of whole messages that were sent
        self._tls = tls
        self._tls_lock = threading.Lock()
        # With TLS: bytes to send, bytes received, and whether a computation was interrupted.
        self._encrypted: list[bytes] = []
        self._received: list[bytes] = []
        self._torn_out = self._torn_in = False
        sock.setblocking(True)
        _limit(sock, socket.SO_RCVTIMEO, TICK_SECONDS)
        # A peer that does not read for this time is taken for dead.
        _limit(sock, socket.SO_SNDTIMEO, patience)
        if tls is not None:
            self._encrypted.append(tls.start())
            self._transmit(self._encrypted)

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, outgoing: list[bytes]) -> None:
        if self._tls is None:
            self._transmit(outgoing)
        else:
            with self._tls_lock:
                self._encrypt(self._tls, outgoing)
                self._transmit(self._encrypted)

    def _encrypt(self, tls: TlsLink, outgoing: list[bytes]) -> None:
        """Encrypt and queue the messages. Call with the lock."""
        _check_whole(self._torn_out)
        encrypted = self._encrypted
        gather(outgoing)
        while outgoing:
            self._torn_out = True
            raw = tls.encrypt(outgoing[0])
            # Nothing is called between these lines.
            if raw:
                encrypted += (raw,)
            del outgoing[0]
            self._torn_out = False

    def _transmit(self, queue: list[bytes]) -> None:
        counts = self._counts
        gather(queue)
        while queue:
            data = queue[0]
            rest = memoryview(data)[sum(counts) :] if counts else data
            try:
                counts.extend(map(self._sock.send, (rest,)))
            except BlockingIOError:
                if self._room():
                    continue
                raise TimeoutError(errno.ETIMEDOUT, "the peer does not read") from None
            except (BrokenPipeError, ConnectionResetError):
                # The peer may have sent a reason: the receiving thread reads that, then the end.
                del queue[:], counts[:]
                return
            if counts[0] == (size := len(data)) or sum(counts) == size:
                # Nothing is called between these lines.
                del queue[0]
                del counts[:]
                self._sent += size

    def _room(self) -> bool:
        """Return whether the socket takes more bytes now. The kernel has already waited for that."""
        return False

    def flow(self) -> tuple[int, int]:
        try:
            answer = fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):  # closed, or not a socket of TCP
            return self._sent, 0
        unsent: int = struct.unpack("i", answer)[0]
        return self._sent + sum(self._counts) - unsent, unsent

    def receive(self, portions: list[bytes], wait: bool) -> bool:
        flags = 0 if wait else socket.MSG_DONTWAIT
        tls = self._tls
        try:
            if tls is None:
                portions.extend(map(self._sock.recv, (READ_SIZE,), (flags,)))
                return True
            self._received.extend(map(self._sock.recv, (READ_SIZE,), (flags,)))
        except BlockingIOError:
            if tls is None or not self._received:
                return False
        return self._decrypt(tls, portions)

    def _decrypt(self, tls: TlsLink, portions: list[bytes]) -> bool:
        _check_whole(self._torn_in)
        received = self._received
        plain = b""
        while received:
            if not received[0]:
                plain = received[0]
                portions.append(plain)
                return True
            self._torn_in = True
            try:
                plain = tls.decrypt(received[0])
            except HandshakeError:
                self._say_goodbye()
                raise
            # Nothing is called between these lines.
            if plain:
                portions += (plain,)
            del received[0]
            self._torn_in = False
        if tls.pending:
            with self._tls_lock:
                _check_whole(self._torn_out)
                encrypted = self._encrypted
                self._torn_out = True
                raw = tls.outgoing()
                # Nothing is called between these lines.
                encrypted += (raw,)
                self._torn_out = False
                self._transmit(encrypted)
        return bool(plain)

    def _say_goodbye(self) -> None:
        """Send the TLS close alert, unless another thread is sending."""
        if self._tls is None:
            return
        taken: list[bool] = []
        try:
            taken.extend(map(self._tls_lock.acquire, (False,)))
            if any(taken):
                self._sock.send(self._tls.farewell(), socket.MSG_DONTWAIT)
        except OSError:
            pass  # the peer closed first, or does not read
        finally:
            if True in taken:
                self._tls_lock.release()

    def end(self) -> None:
        self._say_goodbye()
        # Unlike close(), this wakes up the threads inside recv() and send().
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer closed first

    def close(self) -> None:
        self._sock.close()


def _check_whole(torn: bool) -> None:
    if torn:
        raise ConnectionAbortedError(
            errno.ECONNABORTED, "an exception from outside interrupted a computation of TLS"
        )


def _limit(sock: socket.socket, option: int, seconds: float) -> None:
    whole = int(seconds)
    sock.setsockopt(
        socket.SOL_SOCKET, option, struct.pack("ll", whole, int((seconds - whole) * 1e6))
    )


class LockWaker:
    """A lock that is created locked: acquire() sleeps, release() wakes."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=seconds)

    def wake(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # already woken


def _nothing() -> None:
    """What a watch does that was forgotten."""


class EpollWatch:
    """One descriptor in the watcher's epoll, armed for one event at a time."""

    def __init__(self, watcher: Watcher, fd: int, served: Watched) -> None:
        self._watcher = watcher
        self._fd = fd
        self._epoll = epoll = watcher.epoll
        watcher.add(fd, served)
        modify = epoll.modify
        self.arm: Callable[[], None] = partial(modify, fd, select.EPOLLIN | select.EPOLLONESHOT)
        # epoll always reports a hangup; with this flag it does so only once.
        self.disarm: Callable[[], None] = partial(modify, fd, select.EPOLLONESHOT)

    def forget(self) -> None:
        if self._watcher.remove(self._fd):
            self._epoll.unregister(self._fd)
        self.arm = self.disarm = _nothing


class Watcher:
    """The thread that serves channels on which no other thread waits. :meth:`stop` ends it."""

    def __init__(self, epoll: select.epoll) -> None:
        self.epoll = epoll
        self._served: dict[int, weakref.ref[Watched]] = {}
        self._stop_read, self._stop_write = os.pipe()
        self.epoll.register(self._stop_read, select.EPOLLIN)
        threading.Thread(target=self._run, name="neo-client-watcher", daemon=True).start()

    def add(self, fd: int, served: Watched) -> None:
        self._served[fd] = weakref.ref(served)
        self.epoll.register(fd, select.EPOLLONESHOT)

    def remove(self, fd: int) -> bool:
        """Serve a descriptor no longer. Return whether the epoll has it."""
        return self._served.pop(fd, None) is not None

    def wait(self) -> list[tuple[int, int]]:
        """Return ready descriptors with their events; an empty list when it is time to sweep."""
        return self.epoll.poll(SWEEP_SECONDS)

    def stop(self) -> None:
        os.write(self._stop_write, b".")

    def _run(self) -> None:
        next_sweep = time.monotonic() + SWEEP_SECONDS
        while True:
            fds = {fd for fd, _ in self.wait()}
            if self._stop_read in fds:
                self._served.clear()
                self.abandon()
                return
            for fd in fds:
                self._serve(fd)
            if time.monotonic() >= next_sweep:
                for fd in list(self._served):
                    self._serve(fd, sweep=True)
                next_sweep = time.monotonic() + SWEEP_SECONDS

    def _serve(self, fd: int, sweep: bool = False) -> None:
        reference = self._served.get(fd)
        served = None if reference is None else reference()
        if served is not None:
            try:
                served.sweep() if sweep else served.serve()
            except Exception:
                # One channel's error must not stop the thread that serves all of them.
                logger.exception("unexpected error in the watcher's thread")

    def abandon(self) -> None:
        """Close the descriptors, at the end of the thread or in a forked child. The epoll is closed with
        its last watch: a thread may just be arming that."""
        del self.epoll
        os.close(self._stop_read)
        os.close(self._stop_write)


class RealThreads:
    """What a :class:`neo.net.host.ThreadHost` has besides connections: locks, threads, the clock."""

    direct: DirectReads | None = None

    def __init__(self) -> None:
        self._random = random.Random()

    now = staticmethod(time.monotonic)

    def name(self) -> str:
        return f"{socket.gethostname()}:{os.getpid()}"

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def lock(self) -> Lock:
        return threading.Lock()

    presence = staticmethod(threading.Lock)

    def rlock(self) -> AbstractContextManager[object]:
        return threading.RLock()

    def waker(self) -> LockWaker:
        return LockWaker()

    def background(self, job: Callable[[], None], name: str) -> None:
        threading.Thread(target=job, name=name, daemon=True).start()

    def choose(self, items: Sequence[int]) -> int:
        return items[int(self._random.random() * len(items))]

    def fault(self, site: FaultSite) -> bool:
        return False

    def reopen_logs(self) -> None:
        """Reopen the files of the client's own logger; other loggers belong to the application."""
        reopen(logging.getLogger("neo.client").handlers, logger, "neoctl flush_log")

    def forked(self) -> None:
        """Start anew in the child of a fork."""
        self._random = random.Random()


class System(RealThreads):
    """The :class:`neo.net.host.ThreadHost` of one real client."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self._patience = patience
        self._watcher: Watcher | None = None
        self._watcher_lock = threading.Lock()
        self._stopped = False

    def connect(
        self, address: Address, tls: TlsLink | None, seconds: float | None = None
    ) -> SocketWire:
        try:
            sock = socket.create_connection(address, seconds or DIAL_SECONDS)
        except (ValueError, OverflowError) as e:  # a peer announced an invalid name or port
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

    def watch(self, wire: Wire, served: Watched) -> Watch:
        assert isinstance(wire, SocketWire)
        with self._watcher_lock:
            if self._stopped:
                raise OSError("the client was closed while it connected")
            if self._watcher is None:
                self._watcher = self.watcher()
            return EpollWatch(self._watcher, wire.fileno(), served)

    def stop(self) -> None:
        """Stop the watcher, for good."""
        with self._watcher_lock:
            self._stopped = True
            if self._watcher is not None:
                self._watcher.stop()
                self._watcher = None

    def forked(self) -> None:
        """Discard what belongs to the parent. Call in the child of a fork."""
        super().forked()
        if self._watcher is not None:
            self._watcher.epoll.close()  # the parent's, too: no watch of the child may change it
            self._watcher.abandon()
        self._watcher = None
        self._watcher_lock = threading.Lock()
