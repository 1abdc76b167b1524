"""The process of a node: event loop, sockets, clock, signals, exit codes.

Exit codes: 0 stopped on request, 1 the node cannot continue, 2 a setting is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import uvloop

from neo.net.connection import Connection
from neo.net.fault_sites import FaultSite
from neo.net.sockets import format_address, is_loopback
from neo.net.tls import TlsLink, tls_context
from neo.net.transport import Transport, bound_socket, dial
from neo.node.config import ConfigError
from neo.node.core import Core
from neo.node.host import Timer
from neo.node.log import configure_logging, reopen_logs
from neo.node.log_throttle import LogThrottle
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import Address, Error

logger = logging.getLogger("neo.node")

#: Pauses between attempts to start a core again; the last one repeats.
RESTART_SECONDS = (1, 2, 5, 10, 30)
#: Pause between attempts to make the first core.
FIRST_RETRY_SECONDS = 1.0
#: At the end, time for written bytes to leave. A peer that does not read is then given up.
DRAIN_SECONDS = 2.0
#: A connection that sends nothing while there is no core is closed after this time.
UNHEARD_SECONDS = 10.0
#: Connections that the kernel queues while the loop is busy, because all clients may reconnect at once.
#: At most the limit of untrusted peers, because all of them are accepted at once.
BACKLOG = 1024
#: Limit of untrusted peers. They also have at most a quarter of the files that the process may open.
STRANGERS_MOST = 1024

#: Options for one start.
ONCE = ("--reset", "--new-nid")

MakeCore = Callable[["ProcessHost"], Core]


class StartFailure(Exception):
    """A core cannot be made now. The message says why and what to do.

    ``patience``: seconds since the start of the process in which making the first core is tried again.
    """

    def __init__(self, message: str, patience: float = 0.0) -> None:
        super().__init__(message)
        self.patience = patience


class ProcessHost:
    """Implements :class:`neo.node.host.Host` for one process."""

    def __init__(self, settings: argparse.Namespace, make_core: MakeCore) -> None:
        self.random = random.Random()
        self.settings = settings
        self.bind: Address | None = settings.bind
        self._make_core = make_core
        self._core: Core | None = None
        self._failures = 0
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        #: Limit of connections with untrusted peers.
        self._strangers = STRANGERS_MOST if files < 0 else max(1, min(STRANGERS_MOST, files // 4))
        #: The program is executed again when the process ends.
        self.renews = False
        #: Why there is no core.
        self._waits = ""
        self._server: asyncio.Server | None = None
        self._client_tls: ssl.SSLContext | None = None
        self._server_tls: ssl.SSLContext | None = None
        self._dials: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop
        self._thread: int
        self._ended: asyncio.Future[int]

    # -- Host -----------------------------------------------------------------------------------

    #: Unlike CLOCK_MONOTONIC, it continues while the machine is suspended, as a lease does.
    monotonic = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    time = staticmethod(time.time)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay, callback)

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        def run() -> None:
            callback(*args)
            core = self._core
            if core is not None and core.touched:
                core.flush()

        # The loop's own thread need not wake the loop through the kernel.
        here = threading.get_ident() == self._thread
        return self._loop.call_soon(run) if here else self._loop.call_soon_threadsafe(run)

    def dial(self, peer: Peer) -> None:
        assert peer.address is not None
        tls = None if self._client_tls is None else TlsLink(self._client_tls, server=False)
        transport = Transport(peer, tls)
        peer.link = transport
        task = self._loop.create_task(dial(transport, peer.address))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    def reopen_logs(self) -> None:
        reopen_logs()

    def fault(self, site: FaultSite) -> bool:
        return False

    def stop(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    def restart(self, why: str) -> None:
        """Make another core after a pause. ``why``: the reason, told to peers that connect meanwhile."""
        self._core = None
        self._waits = why
        delay = RESTART_SECONDS[min(self._failures, len(RESTART_SECONDS) - 1)]
        self._failures += 1
        logger.warning("this node starts again in %s s", delay)
        self._loop.call_later(delay, self._start_again)

    def renew(self) -> None:
        """Stop, and have :func:`main` execute the program again, unless the process ends already."""
        self.renews = not self._ended.done()
        self.stop(0)

    def healthy(self) -> None:
        """Reset the pauses between restarts."""
        self._failures = 0

    def _start_again(self) -> None:
        try:
            self._start_core()
        except (ConfigError, StartFailure) as e:
            logger.error("%s", e)
            self.restart(str(e))
        except Exception as e:
            # Otherwise the process would continue without a core.
            logger.critical("unexpected error: cannot start again: %s", e, exc_info=e)
            self.stop(1)

    def _start_core(self) -> None:
        self._core = self._make_core(self)
        self._core.start()
        self._core.flush()

    # -- process ---------------------------------------------------------------------------------

    def _accept(self) -> asyncio.Protocol:
        tls = None if self._server_tls is None else TlsLink(self._server_tls, server=True)
        return Transport(_Accepted(self), tls)

    def peer_for(self, address: Address) -> Peer | None:
        """Return the peer of a new connection, or None while there is no core."""
        if self._core is None:
            return None
        self._core.limit_strangers(self._strangers)
        return self._core.accepted(address)

    def turn_away(self, transport: Transport) -> None:
        """Tell a new connection why there is no core. It is closed when the peer has sent something:
        before, the peer may not have read the reason, or a TLS handshake may be under way."""
        connection = Connection(server=True)
        connection.answer(None, Error(ErrorCode.NOT_READY.value, self._waits))
        transport.write(connection.take_outgoing())
        self._loop.call_later(UNHEARD_SECONDS, transport.close)

    def _signal(self, number: signal.Signals) -> None:
        logger.info("%s received", number.name)
        self.renews = False  # the signal is for the next program, too
        if self._core is None:
            self.stop(0)
        else:
            self._core.terminate()
            self._core.flush()

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an uncaught error of a callback of the loop. It stops the node, whose state would be
        unknown. An OSError belongs to one connection, which has ended."""
        error = context.get("exception")
        if self._core is None or not isinstance(error, Exception) or isinstance(error, OSError):
            loop.default_exception_handler(context)
        else:
            logger.critical("unexpected error: %s", context.get("message"), exc_info=error)
            self._core.fail(error)

    async def run(self) -> int:
        """Serve until the end, and return the exit code."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ended = self._loop.create_future()
        self._loop.set_exception_handler(self._unexpected)
        settings = self.settings
        if settings.ca:
            try:
                self._client_tls, self._server_tls = (
                    tls_context(settings.ca, settings.cert, settings.key, server)
                    for server in (False, True)
                )
            except ValueError as e:
                raise ConfigError(str(e)) from None
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signal, number)
        self._loop.add_signal_handler(signal.SIGUSR2, reopen_logs)
        sock = self._bind()
        await self._first_core(sock)
        if not self._ended.done():
            await self._listen(sock)
        code = await self._ended
        if self._server is not None:
            self._server.close()
        await self._drain()
        return code

    async def _first_core(self, sock: socket.socket | None) -> None:
        """Make the core, unless the process is told to stop. Meanwhile, connections are told why there
        is none. Raises StartFailure."""
        begin = self.monotonic()
        throttle = LogThrottle(self.monotonic)
        while not self._ended.done():
            try:
                self._start_core()
                return
            except StartFailure as e:
                if self.monotonic() - begin >= e.patience:
                    raise
                if (more := throttle.admit(str(e))) is not None:
                    logger.warning("not started yet, trying again each second: %s%s", e, more)
                self._waits = f"not started yet: {e}"
                await self._listen(sock)
            await asyncio.wait([self._ended], timeout=FIRST_RETRY_SECONDS)

    def _bind(self) -> socket.socket | None:
        if self.bind is None:
            return None
        try:
            sock = bound_socket(self.bind)
        except OSError as e:
            raise self._cannot_listen(e) from None
        self.bind = sock.getsockname()[:2]
        return sock

    async def _listen(self, sock: socket.socket | None) -> None:
        """Listen. Idempotent."""
        if sock is None or self.bind is None or self._server is not None:
            return
        backlog = min(BACKLOG, self._strangers)
        try:
            self._server = await self._loop.create_server(self._accept, sock=sock, backlog=backlog)
        except OSError as e:
            raise self._cannot_listen(e) from None
        logger.info("listening on %s", format_address(self.bind))
        if self._server_tls is None and not is_loopback(self.bind):
            logger.warning(
                "no TLS on %s, which other machines may reach: any of them can stop the cluster, read"
                " and change all data; set ca, cert and key, or close the port to others",
                format_address(self.bind),
            )

    def _cannot_listen(self, error: OSError) -> StartFailure:
        assert self.bind is not None
        reason = error.strerror or error
        return StartFailure(f"cannot listen on {format_address(self.bind)}: {reason}")

    async def _drain(self) -> None:
        """Wait until closing transports have sent their last bytes."""
        for task in self._dials:
            task.cancel()
        deadline = self._loop.time() + DRAIN_SECONDS
        while Transport.open_count and self._loop.time() < deadline:
            await asyncio.sleep(0.005)


class _Accepted:
    """First owner of an accepted transport, until its remote address is known and its peer is made."""

    def __init__(self, host: ProcessHost) -> None:
        self._host = host
        #: Set if the connection was turned away.
        self._transport: Transport | None = None

    def connected(self, transport: Transport, address: Address) -> None:
        peer = self._host.peer_for(address)
        if peer is None:
            self._host.turn_away(transport)
            self._transport = transport
            return
        peer.link = transport
        transport.report_to(peer)
        peer.core.flush()

    def received(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.close()

    def slow(self) -> None: ...

    def drained(self) -> None: ...

    def lost(self, reason: str) -> None: ...


def _begin_anew() -> NoReturn:
    """Execute the program again: the same process for those who watch it. Its sockets and locks are
    closed. Raise StartFailure."""
    logger.warning("this process begins anew with the release that is installed")
    try:
        os.execv(sys.executable, [sys.executable, *words_again(sys.orig_argv[1:])])
    except OSError as e:
        raise StartFailure(f"{sys.executable} cannot be executed again: {e}") from None


def words_again(words: list[str]) -> list[str]:
    """Return the words of a command line without those that must not be followed twice: ``--reset``
    would erase the database. They may be shortened to what is not ambiguous."""
    return [
        word
        for word in words
        if len(word) <= 2 or not any(option.startswith(word) for option in ONCE)
    ]


def main(
    role: str,
    load_settings: Callable[[list[str]], argparse.Namespace],
    make_core: MakeCore,
) -> int:
    """Run a node process and return its exit code. Call on the main thread."""
    program = f"neo{role}"
    try:
        settings = load_settings(sys.argv[1:])
        try:
            configure_logging(program, settings.logfile, settings.log_format, settings.log_level)
        except OSError as e:
            raise ConfigError(f"setting 'logfile': {e}") from None
        try:
            host = ProcessHost(settings, make_core)
            code = uvloop.run(host.run())
            if host.renews:
                _begin_anew()
            return code
        except (ConfigError, StartFailure) as e:
            if settings.logfile:  # otherwise the log is on stderr, where main() prints the error
                logger.critical("%s", e)
            raise
    except ConfigError as e:
        print(f"{program}: {e}", file=sys.stderr)
        return 2
    except StartFailure as e:
        print(f"{program}: {e}", file=sys.stderr)
        return 1
