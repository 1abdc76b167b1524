"""HTTP of the admin node, for programs that watch a cluster: ``/live``, ``/ready``, ``/metrics``.

Threads of their own serve it, because a peer of HTTP may be slow; they ask the core on its own thread.
"""

from __future__ import annotations

import logging
import socket
import ssl
import sys
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any, NamedTuple

from neo.admin.observing import Observer, Snapshot
from neo.net.sockets import format_address
from neo.protocol.packets import Address

logger = logging.getLogger("neo.admin")

#: Timeout of the core, and of a peer that reads or writes.
TIMEOUT_SECONDS = 10.0
#: Requests that are served at a time; more wait for their turn.
REQUESTS_MAX = 8
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
NOT_INSTALLED = "metrics need the package prometheus-client: pip install 'zodb-neo[metrics]'\n"

#: Runs a function on the thread of the core.
FromThread = Callable[..., object]


class Page(NamedTuple):
    status: HTTPStatus
    kind: str
    body: bytes


class HttpServer:
    """``tls``: None for plain HTTP."""

    def __init__(
        self,
        address: Address,
        tls: ssl.SSLContext | None,
        cluster: str,
        observer: Observer,
        from_thread: FromThread,
    ) -> None:
        """Listen. Raise OSError."""
        self._cluster = cluster
        self._observer = observer
        self._from_thread = from_thread
        self._places = BoundedSemaphore(REQUESTS_MAX)
        family = _Server6 if ":" in address[0] else _Server
        self._server = family(address, _handler(self._page), tls)
        host, port = self._server.server_address[:2]
        self.address: Address = str(host), int(port)
        self._thread = Thread(target=self._server.serve_forever, name="http", daemon=True)

    def start(self) -> None:
        logger.info("HTTP on %s: /live, /ready, /metrics", format_address(self.address))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- in threads of requests ----------------------------------------------------------------------

    def _page(self, path: str) -> Page:
        answer = {"/live": _live, "/ready": _ready, "/metrics": self._metrics}.get(path)
        if answer is None:
            text = b"/live: this process works; /ready: the cluster serves; /metrics\n"
            return Page(HTTPStatus.OK if path == "/" else HTTPStatus.NOT_FOUND, TEXT, text)
        snapshot: Future[Snapshot] = Future()
        with self._places:
            if answer is _live:  # whatever the master does
                self._from_thread(snapshot.set_result, Snapshot())
            else:
                self._from_thread(self._observer.observe, snapshot.set_result)
            try:
                return answer(snapshot.result(TIMEOUT_SECONDS))
            except TimeoutError:
                return Page(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"no answer of the admin node\n")

    def _metrics(self, snapshot: Snapshot) -> Page:
        try:
            # Here, because it is an extra.
            from neo.admin.metrics import exposition
        except ImportError:
            return Page(HTTPStatus.NOT_IMPLEMENTED, TEXT, NOT_INSTALLED.encode())
        return Page(HTTPStatus.OK, METRICS, exposition(snapshot, self._cluster))


def _live(snapshot: Snapshot) -> Page:
    return Page(HTTPStatus.OK, TEXT, b"live\n")


def _ready(snapshot: Snapshot) -> Page:
    status = HTTPStatus.OK if snapshot.ready else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(status, TEXT, f"{snapshot.summary}\n".encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: Address, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None
    ) -> None:
        self._tls = tls
        super().__init__(address, handler)

    def get_request(self) -> tuple[Any, Any]:
        sock, address = super().get_request()
        sock.settimeout(TIMEOUT_SECONDS)
        if self._tls is not None:
            # The handshake is made by the thread of the request, when it reads.
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return sock, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a bug; a connection that ended or was refused is the business of its peer."""
        ended = isinstance(sys.exception(), OSError)
        level = logging.DEBUG if ended else logging.ERROR
        logger.log(level, "failure while serving HTTP to %s", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


def _handler(page: Callable[[str], Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "neoadmin"
        sys_version = ""

        def do_GET(self) -> None:
            found = page(self.path.partition("?")[0])
            self.send_response(found.status)
            self.send_header("Content-Type", found.kind)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(found.body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            logger.debug("HTTP: " + format, *args)

    return Handler
