"""HTTP of a node, for programs that watch it and for browsers.

Threads of their own serve it, because a peer of HTTP may be slow. A page asks the core on the core's own
thread.
"""

from __future__ import annotations

import argparse
import errno
import logging
import socket
import ssl
import sys
from collections.abc import Callable
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any, NamedTuple

from neo.net.sockets import format_address, is_loopback
from neo.net.tls import tls_context
from neo.node.core_life import StartFailure
from neo.protocol.packets import Address

logger = logging.getLogger("neo.node")

#: Timeout of the core, and of a peer that reads or writes.
TIMEOUT_SECONDS = 10.0
#: Requests that are served at a time; more wait for their turn.
REQUESTS_MAX = 8
#: Bytes of a body: some words that a person typed.
BODY_MAX = 4096
TEXT = "text/plain; charset=utf-8"
BUSY_ADVICE = (
    "each node of a machine needs a port of its own: write 'http' into their sections, not into [DEFAULT]"
)

#: Runs a function on the thread of the core.
FromThread = Callable[..., object]


class Page(NamedTuple):
    status: HTTPStatus
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Request(NamedTuple):
    """``method``: ``GET``, for which HEAD counts, too, or ``POST``. ``path``: without what follows a
    question mark. ``headers``: by name, in any case. ``tls``: whether the server has it. ``private``:
    whether no other machine can read what travels: the server has TLS, or listens on loopback. ``peer``:
    the address of the other side, without its port."""

    method: str
    path: str
    headers: Message
    body: bytes
    tls: bool
    private: bool
    peer: str


#: Return the page of a path. Threads of requests call it.
Pages = Callable[[str], Page]
#: Return the page of a request, None if it is none of its. Threads of requests call it.
Site = Callable[[Request], Page | None]


def serve_http(
    settings: argparse.Namespace, pages: Pages, site: Site | None = None
) -> HttpServer:
    """Serve ``site``, if there is one, and ``pages`` at ``settings.http``, with TLS unless only this
    machine reaches it. Raise StartFailure if the address cannot be used."""
    address, tls = settings.http, None
    if not is_loopback(address):
        if settings.ca:
            tls = tls_context(settings.ca, settings.cert, settings.key, server=True)
        else:
            logger.warning(
                "no TLS for HTTP on %s, which other machines may reach: any of them can read the"
                " figures of the cluster",
                format_address(address),
            )
    try:
        server = HttpServer(address, tls, pages, site)
    except OSError as e:
        advice = f"; {BUSY_ADVICE}" if e.errno == errno.EADDRINUSE else ""
        raise StartFailure(
            f"cannot listen on {format_address(address)} for HTTP: {e.strerror or e}{advice}"
        ) from None
    server.start()
    return server


class HttpServer:
    """``tls``: None for plain HTTP."""

    def __init__(
        self,
        address: Address,
        tls: ssl.SSLContext | None,
        pages: Pages,
        site: Site | None = None,
    ) -> None:
        """Listen. Raise OSError."""
        self._pages = pages
        self._site = site
        self._places = BoundedSemaphore(REQUESTS_MAX)
        family = _Server6 if ":" in address[0] else _Server
        private = tls is not None or is_loopback(address)
        self._server = family(address, _handler(self._page, tls is not None, private), tls)
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

    def _page(self, request: Request) -> Page:
        with self._places:
            page = None if self._site is None else self._site(request)
            if page is not None:
                return page
            if request.method != "GET":
                return Page(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"nothing can be posted here\n")
            return self._pages(request.path)


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


def _handler(
    page: Callable[[Request], Page], tls: bool, private: bool
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "neo"
        sys_version = ""

        def do_GET(self) -> None:
            self._answer(self._request("GET", b""))

        do_HEAD = do_GET

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not (length.isascii() and length.isdecimal() and int(length) <= BODY_MAX):
                self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                return
            self._answer(self._request("POST", self.rfile.read(int(length))))

        def _request(self, method: str, body: bytes) -> Request:
            path, peer = self.path.partition("?")[0], str(self.client_address[0])
            return Request(method, path, self.headers, body, tls, private, peer)

        def _answer(self, request: Request) -> None:
            found = page(request)
            self.send_response(found.status)
            self.send_header("Content-Type", found.kind)
            self.send_header("Content-Length", str(len(found.body)))
            for name, value in found.headers:
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(found.body)

        def log_message(self, format: str, *args: Any) -> None:
            logger.debug("HTTP: " + format, *args)

    return Handler
