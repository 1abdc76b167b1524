"""The host of one node in a process: its address, its core, connections to it and from it.

Nodes of the same process reach each other without sockets (:mod:`neo.node.local`).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Protocol

from neo.net.connection import Connection
from neo.net.fault_sites import FaultSite
from neo.net.sockets import format_address, is_loopback
from neo.net.tls import TlsLink, tls_context
from neo.net.transport import Transport, bound_socket, dial
from neo.node.config import ConfigError
from neo.node.core import Core
from neo.node.core_life import CoreLife, StartFailure
from neo.node.host import Timer
from neo.node.http import HttpServer, Page, Pages, Request, Site, serve_http
from neo.node.local import Deliveries, LocalLink, join
from neo.node.log import NODE, reopen_logs
from neo.node.log_throttle import LogThrottle
from neo.node.meter import Meter
from neo.node.pages import NodePages
from neo.node.peer import Peer
from neo.node.tracing import Exporter, Traces
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import Address, Error

logger = logging.getLogger("neo.node")

#: Pause between attempts to make the first core.
FIRST_RETRY_SECONDS = 1.0
#: A connection that sends nothing while there is no core is closed after this time.
UNHEARD_SECONDS = 10.0
#: Connections that the kernel queues while the loop is busy, because all clients may reconnect at once.
#: At most the limit of untrusted peers, because all of them are accepted at once.
BACKLOG = 1024
#: Limit of untrusted peers. Those of all nodes have at most a quarter of the files that the process may
#: open.
STRANGERS_MOST = 1024

MakeCore = Callable[["NodeHost"], Core]


class Machine(Protocol):
    """The process of this node and others; see :class:`neo.node.process.Process`."""

    nodes: list[NodeHost]

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def thread(self) -> int:
        """The thread of the loop."""

    @property
    def deliveries(self) -> Deliveries: ...

    @property
    def ended(self) -> asyncio.Future[int]:
        """Done when the process ends."""

    def node_at(self, address: Address) -> NodeHost | None:
        """Return the node of this process that listens there."""

    def node_ended(self, node: NodeHost, code: int) -> None: ...

    def renew(self) -> None: ...


class NodeHost:
    """Implements :class:`neo.node.host.Host` for one node. ``name``: its section, empty if it is the only
    node of the process. The new node is the last one of the process."""

    def __init__(
        self,
        process: Machine,
        settings: argparse.Namespace,
        make_core: MakeCore,
        name: str = "",
        role: str = "",
    ) -> None:
        self.random = random.Random()
        self.settings = settings
        self.name = name
        self.role = role
        self.bind: Address | None = settings.bind
        #: The node stopped by itself, or was stopped.
        self.ended = False
        self._process = process
        self._life = CoreLife(self, partial(make_core, self), "this node")
        self._strangers = STRANGERS_MOST
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._client_tls: ssl.SSLContext | None = None
        self._server_tls: ssl.SSLContext | None = None
        self._dials: set[asyncio.Task[None]] = set()
        self._http: HttpServer | None = None
        #: None if requests are not measured.
        self.meter: Meter | None = None
        #: None if traces are not exported. They are measured, too.
        self.traces: Traces | None = None
        self._tracer: Exporter | None = None
        self._collector: str | None = getattr(settings, "tracing", None)  # not of all roles
        if settings.http is not None or settings.log_slow is not None or self._collector:
            self.meter = Meter(self.monotonic, settings.log_slow)
        #: What HTTP serves. A role may have other pages.
        self.pages: Pages = NodePages(self).page
        #: What HTTP serves besides, if a role has it.
        self.site: Site | None = None
        self._context: Context = copy_context()
        self._context.run(NODE.set, name)
        process.nodes.append(self)

    # -- Host -----------------------------------------------------------------------------------

    #: Unlike CLOCK_MONOTONIC, it continues while the machine is suspended, as a lease does.
    monotonic = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    time = staticmethod(time.time)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self._process.loop.call_later(delay, callback)

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        # The loop's own thread need not wake the loop through the kernel.
        process, call = self._process, self._life.call
        if threading.get_ident() == process.thread:
            return process.loop.call_soon(call, callback, args, context=self._context)
        return process.loop.call_soon_threadsafe(call, callback, args, context=self._context)

    def dial(self, peer: Peer) -> None:
        assert peer.address is not None
        node = self._process.node_at(peer.address)
        if node is not None:
            join(peer, self._process.deliveries, partial(node.accept, self.bind))
            return
        tls = None if self._client_tls is None else TlsLink(self._client_tls, server=False)
        transport = Transport(peer, tls)
        peer.link = transport
        task = self._process.loop.create_task(dial(transport, peer.address))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    def reopen_logs(self) -> None:
        reopen_logs()

    def fault(self, site: FaultSite) -> bool:
        return False

    def stop(self, code: int) -> None:
        self._process.node_ended(self, code)

    def restart(self, why: str) -> None:
        """Make another core after a pause. ``why``: the reason, told to peers that connect meanwhile."""
        self._life.restart(why)

    def renew(self) -> None:
        """Stop, and have the program executed again, unless the process ends already."""
        self._process.renew()

    @property
    def shared(self) -> bool:
        """Whether other nodes run in this process."""
        return len(self._process.nodes) > 1

    def healthy(self) -> None:
        """Reset the pauses between restarts."""
        self._life.healthy()

    # -- connections from others -----------------------------------------------------------------

    def _accept(self) -> asyncio.Protocol:
        tls = None if self._server_tls is None else TlsLink(self._server_tls, server=True)
        return Transport(_Accepted(self), tls)

    def accept(self, address: Address | None, link: LocalLink) -> None:
        """Take a connection from a node of this process that listens at ``address``."""
        NODE.set(self.name)
        peer = None if self.ended else self.peer_for(address or ("", 0))
        if peer is None:
            link.refuse(self._life.waits)
        else:
            link.attach(peer)
            peer.core.flush()

    def peer_for(self, address: Address) -> Peer | None:
        """Return the peer of a new connection, or None while there is no core."""
        core = self._life.core
        if core is None:
            return None
        core.limit_strangers(self._strangers)
        return core.accepted(address)

    def turn_away(self, transport: Transport) -> None:
        """Tell a new connection why there is no core. It is closed when the peer has sent something:
        before, the peer may not have read the reason, or a TLS handshake may be under way."""
        connection = Connection(server=True)
        connection.answer(None, Error(ErrorCode.NOT_READY.value, self._life.waits))
        transport.write(connection.take_outgoing())
        self._process.loop.call_later(UNHEARD_SECONDS, transport.close)

    # -- called by the process -------------------------------------------------------------------

    @property
    def core(self) -> Core | None:
        """The core, None while there is none."""
        return None if self.ended else self._life.core

    @property
    def waits(self) -> str:
        """Why there is no core."""
        return self._life.waits

    def prepare(self) -> None:
        """Bind the address and read the files of TLS. Raise ConfigError, StartFailure."""
        settings = self.settings
        if settings.ca:
            try:
                self._client_tls, self._server_tls = (
                    tls_context(settings.ca, settings.cert, settings.key, server)
                    for server in (False, True)
                )
            except ValueError as e:
                raise ConfigError(str(e)) from None
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files >= 0:
            share = files // 4 // len(self._process.nodes)
            self._strangers = max(1, min(STRANGERS_MOST, share))
        if self.bind is not None:
            try:
                self._socket = bound_socket(self.bind)
            except OSError as e:
                raise self._cannot_listen(e) from None
            self.bind = self._socket.getsockname()[:2]
        if settings.http is not None:
            self._http = serve_http(settings, self._page, self._site)
        if self._collector:
            self._trace_to(self._collector)

    def _trace_to(self, collector: str) -> None:
        try:
            # Here, because it is an extra.
            from neo.node.otlp import OtlpTracer
        except ImportError as e:
            raise ConfigError(
                f"setting 'tracing' needs OpenTelemetry ({e}): pip install 'zodb-neo[tracing]'"
            ) from None
        instance = self.name or format_address(self.bind)
        tracer = OtlpTracer(collector, self.settings.cluster, self.role, instance)
        self._tracer, self.traces = tracer, Traces(tracer, self)

    def _page(self, path: str) -> Page:
        return self.pages(path)

    def _site(self, request: Request) -> Page | None:
        return None if self.site is None else self.site(request)

    def start(self) -> asyncio.Task[None]:
        """Begin to serve. The task ends when the node has a core and listens. It raises StartFailure and
        ConfigError."""
        return self._process.loop.create_task(self._serve(), context=self._context)

    async def _serve(self) -> None:
        try:
            await self._first_core()
            if not self.over:
                await self._listen()
        except StartFailure as e:
            if self.name:
                raise StartFailure(f"{self.name}: {e}") from None
            raise

    @property
    def over(self) -> bool:
        """The node shall not start any more."""
        return self.ended or self._process.ended.done()

    async def _first_core(self) -> None:
        """Make the core, unless the node is told to stop. Meanwhile, connections are told why there is
        none. Raises StartFailure."""
        begin = self.monotonic()
        throttle = LogThrottle(self.monotonic)
        while not self.over:
            try:
                self._life.start()
                return
            except StartFailure as e:
                if self.monotonic() - begin >= e.patience:
                    raise
                if (more := throttle.admit(str(e))) is not None:
                    logger.warning("not started yet, trying again each second: %s%s", e, more)
                self._life.waits = f"not started yet: {e}"
                await self._listen()
            await asyncio.wait([self._process.ended], timeout=FIRST_RETRY_SECONDS)

    async def _listen(self) -> None:
        """Listen. Idempotent."""
        if self._socket is None or self.bind is None or self._server is not None:
            return
        backlog = min(BACKLOG, self._strangers)
        try:
            self._server = await self._process.loop.create_server(
                self._accept, sock=self._socket, backlog=backlog
            )
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

    def terminate(self) -> None:
        """React to a signal that ends the process."""
        self._context.copy().run(self._terminate)

    def _terminate(self) -> None:
        core = self.core
        if core is None:
            self.stop(0)
        else:
            core.terminate()
            core.flush()

    def end(self, code: int) -> None:
        """Stop the core, because the process ends with this exit code."""
        core = self._life.end("it has stopped")
        if core is not None:
            self._context.copy().run(core.stop, code)

    def close(self) -> None:
        """Listen and dial no more."""
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        for task in self._dials:
            task.cancel()
        if self._http is not None:
            # It waits for its thread.
            threading.Thread(target=self._http.close, daemon=True).start()
            self._http = None
        if self._tracer is not None:
            self._tracer.close()
            self._tracer = None


class _Accepted:
    """First owner of an accepted transport, until its remote address is known and its peer is made."""

    def __init__(self, host: NodeHost) -> None:
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
