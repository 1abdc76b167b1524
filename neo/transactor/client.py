"""The client library for application servers: all transactions in order, and the outcome of its own.

A :class:`Transactor` runs one thread. It keeps a connection to the local transactor, subscribes, and
calls ``apply`` once per transaction, in order. :meth:`Transactor.execute`, callable from any thread,
posts a specification until it becomes a transaction, and returns the result of ``apply`` for it.

The client reconnects to a transactor that is down, or that answers *try again later*, until it is served.
When a connection is lost, the outcome of a post is unknown. The post was for one transaction number; the
transaction with this number is the client's own if it has an id that the client was given for it, or
exactly the client's data. If an operation is not idempotent, make its data unique with a random number.
"""

from __future__ import annotations

import queue
import re
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from neo.transactor.members import Address
from neo.transactor.messages import Sid
from neo.transactor.text import LATER, quote, response, sid

Result = TypeVar("Result")

#: Pause between attempts to connect, and between a refused post and the next attempt.
RETRY_SECONDS = 0.1
CONNECT_SECONDS = 5.0
#: Bound of the queue of requests.
WAITING_MAX = 1000

TSPEC = re.compile(rb"tlog_tspec tid (\d+) sid (\d+:\d+) size (\d+)")
POSTED = re.compile(rb"post_response (\d+) posted (\d+:\d+) (\d+)")
REFUSED = re.compile(rb"post_response (\d+) (\w+)")


class TransactorError(Exception):
    """The transactor cannot be used; the message gives the reason."""


def ask_admin(address: Address | str, command: str, secret: str = "") -> str:
    """Return the answer of the admin port to one command, as lines.

    ``address``: that of the port, or the path of its socket, which needs no secret. Raises OSError, and
    TransactorError if authentication fails.
    """
    with _connect(address) as sock, sock.makefile("rb") as answers:
        if sock.family != socket.AF_UNIX:
            word, _, challenge = answers.readline().decode("latin1").strip().partition(" ")
            if word != "challenge":
                raise TransactorError(f"not an admin port: it answers {word} {challenge}".rstrip())
            sock.sendall(b"authenticate %s\n" % response(secret, challenge).encode())
            said = answers.readline().decode("latin1").strip()
            if said != "authenticated":
                raise TransactorError(said or "the connection was closed")
        sock.sendall(command.encode() + b"\nquit\n")
        return answers.read().decode("utf-8", "replace")


def _connect(address: Address | str) -> socket.socket:
    if not isinstance(address, str):
        return socket.create_connection(address, CONNECT_SECONDS)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(CONNECT_SECONDS)
    try:
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


class Transaction(NamedTuple):
    tid: int
    sid: Sid
    data: bytes


class ResponseReader:
    """Splits the responses of a transactor into lines and transactions."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> bytes | Transaction | None:
        """Return a line without its end, a transaction, or None if neither is complete."""
        end = self._buffer.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        match = TSPEC.fullmatch(line)
        if match is None:
            del self._buffer[: end + 1]
            return line
        begin, size = end + 1, int(match[3])
        if len(self._buffer) <= begin + size:
            return None
        data = bytes(self._buffer[begin : begin + size])
        del self._buffer[: begin + size + 1]
        return Transaction(int(match[1]), sid(match[2]), data)


class Request(Generic[Result]):
    """Data to be made a transaction."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.future: Future[Result] = Future()
        #: The transaction number of the last post, and the ids that posts for it were given.
        self.tid = 0
        self.sids: set[Sid] = set()
        #: A post was sent and has not been refused.
        self.pending = False


class Transactor(Generic[Result]):
    def __init__(
        self,
        address: Address,
        apply: Callable[[int, bytes], Result],
        tid: int = 1,
        secret: str = "",
    ) -> None:
        """``apply(tid, data)`` runs on the thread of this object, from transaction ``tid`` on. Empty data
        means a transaction of the transactor's own, without effect on the application."""
        self._address = address
        self._apply = apply
        self._secret = secret
        #: The next transaction to apply.
        self.tid = tid
        self._waiting: queue.Queue[Request[Result]] = queue.Queue(WAITING_MAX)
        self._request: Request[Result] | None = None
        self._posts = 0
        self._retry_at = 0.0
        self._closed = threading.Event()
        #: Writing a byte wakes the thread.
        self._waker, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="transactor", daemon=True)
        self._thread.start()

    def execute(self, data: bytes, timeout: float | None = None) -> Result:
        """Make ``data`` a transaction, and return the result of ``apply`` for it.

        Raises TimeoutError (the transaction may still be decided later), TransactorError, and the
        exceptions of ``apply``.
        """
        if self._closed.is_set():
            raise TransactorError("this client is closed")
        request: Request[Result] = Request(data)
        self._waiting.put(request, timeout=timeout)
        with suppress(OSError):  # close() may run concurrently
            self._wake.send(b"!")
        if self._closed.is_set():  # closed meanwhile: the thread has ended
            self._fail(TransactorError("this client is closed"))
        return request.future.result(timeout)

    def close(self) -> None:
        """End the thread; pending requests fail. Idempotent."""
        if self._waker.fileno() < 0:
            return
        self._closed.set()
        self._wake.send(b"!")
        self._thread.join()
        self._waker.close()
        self._wake.close()
        self._end(TransactorError("this client is closed"))

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with socket.create_connection(self._address, CONNECT_SECONDS) as sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._talk(sock)
            except OSError:
                self._closed.wait(RETRY_SECONDS)
            except TransactorError as e:
                self._end(e)
            except Exception as e:  # noqa: BLE001 - without this thread, callers would wait for ever
                self._end(TransactorError(f"unexpected error of the client: {e!r}"))

    def _talk(self, sock: socket.socket) -> None:
        """Exchange messages until the connection is lost or the client is closed."""
        reader = ResponseReader()
        if self._secret:
            sock.sendall(b"authenticate %s\n" % quote(self._secret.encode()))
        sock.sendall(b"subscribe %d\n" % self.tid)
        if self._request is not None:
            self._request.pending = False  # the outcome of the post is unknown
        self._retry_at = 0.0
        poll = select.poll()  # select() does not support descriptors above 1023
        for each in (sock, self._waker):
            poll.register(each, select.POLLIN)
        while not self._closed.is_set():
            self._post(sock)
            ready = {fd for fd, _ in poll.poll(RETRY_SECONDS * 1000)}
            if self._waker.fileno() in ready:
                self._waker.recv(WAITING_MAX)
            if sock.fileno() not in ready:
                continue
            data = sock.recv(1 << 16)
            if not data:
                self._closed.wait(RETRY_SECONDS)
                return
            reader.feed(data)
            while (item := reader.next()) is not None:
                if isinstance(item, Transaction):
                    self._happened(item)
                else:
                    self._told(sock, item)

    def _post(self, sock: socket.socket) -> None:
        """Post the current request, or take the next one from the queue."""
        if self._request is None:
            try:
                self._request = self._waiting.get_nowait()
            except queue.Empty:
                return
        request = self._request
        if request.pending or time.monotonic() < self._retry_at:
            return
        if request.tid != self.tid:
            request.tid, request.sids = self.tid, set()
        request.pending = True
        self._posts = (self._posts + 1) % (1 << 32)
        size = len(request.data)
        sock.sendall(b"post %d %d %d\n%s\n" % (self._posts, self.tid, size, request.data))

    def _told(self, sock: socket.socket, line: bytes) -> None:
        request = self._request
        if line == b"ping":
            sock.sendall(b"pong\n")
        elif line.startswith(b"error: ") and line.endswith(LATER.encode()):
            raise ConnectionRefusedError(line)
        elif line.startswith(b"error: "):
            raise TransactorError(line.decode("utf-8", "replace"))
        elif line.startswith(b"tlog_tspec_not_available "):
            raise TransactorError(f"transaction {self.tid} is not available in the log")
        elif (posted := POSTED.fullmatch(line)) and request is not None:
            if int(posted[1]) == self._posts:
                request.sids.add(sid(posted[2]))
        elif (refused := REFUSED.fullmatch(line)) and request is not None:
            if int(refused[1]) == self._posts:
                request.pending = False
                self._retry_at = time.monotonic() + RETRY_SECONDS

    def _happened(self, transaction: Transaction) -> None:
        """Apply the next transaction, and complete the request that it belongs to."""
        tid, which, data = transaction
        if tid != self.tid:
            return  # sent for an earlier subscription
        self.tid += 1
        request = self._request
        mine: Request[Result] | None = None
        if request is not None and request.tid == tid:
            request.pending = False
            self._retry_at = 0.0
            if which in request.sids or data == request.data:
                mine, self._request = request, None
        try:
            result = self._apply(tid, data)
        except Exception as e:  # noqa: BLE001 - an exception of the application, passed to the caller
            if mine is not None:
                mine.future.set_exception(e)
        else:
            if mine is not None:
                mine.future.set_result(result)

    def _end(self, error: TransactorError) -> None:
        self._closed.set()
        if self._request is not None:
            self._request.future.set_exception(error)
            self._request = None
        self._fail(error)

    def _fail(self, error: TransactorError) -> None:
        """Fail all queued requests."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait().future.set_exception(error)
