"""The web page over HTTP: its files, and ``/api/status`` (specification 17.51).

Threads of requests call it; it asks the core on the core's own thread.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from http import HTTPStatus
from importlib import resources
from typing import Any, Protocol

from neo.admin.facts import Data
from neo.admin.page.overview import Done
from neo.node.http import TIMEOUT_SECONDS, FromThread, Page, Request

#: Name of the page among its files.
INDEX = "index.html"
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
JSON = "application/json"
#: A browser loads files of this server only, runs no script and no style that is written in the page, and
#: shows the page in no frame of another one.
HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)


class Teller(Protocol):
    def tell(self, done: Done) -> None:
        """Call ``done`` with the data of the page. Called on the thread of the core."""


def json_page(data: Data, status: HTTPStatus = HTTPStatus.OK, *more: tuple[str, str]) -> Page:
    """Return data as a page that no cache keeps. ``more``: headers."""
    return Page(status, JSON, json.dumps(data).encode(), (*HEADERS, ("Cache-Control", "no-store"), *more))


def refusal(status: HTTPStatus, message: str, hint: str = "") -> Page:
    """Return an error as ``neoctl --json`` has it."""
    return json_page({"error": {"message": message, "hint": hint}}, status)


class Site:
    def __init__(self, overview: Teller, from_thread: FromThread) -> None:
        self._overview = overview
        self._from_thread = from_thread
        self._files = _files()

    def __call__(self, request: Request) -> Page | None:
        """Return the page of a request, None if it is none of the site's."""
        if request.path == "/api/status":
            return self._status(request)
        if request.method != "GET":
            return None
        return self._files.get(request.path)

    def _status(self, request: Request) -> Page:
        if request.method != "GET":
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "the status can only be read")
        told: Future[Data] = Future()
        self._from_thread(self._overview.tell, told.set_result)
        try:
            return json_page(told.result(TIMEOUT_SECONDS))
        except TimeoutError:
            return refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "the admin node does not answer", "look at its log"
            )


def _files() -> dict[str, Page]:
    """Return the files of the page by path. A browser asks for them again each time, so that a page never
    consists of two releases."""
    headers: Any = (*HEADERS, ("Cache-Control", "no-cache"))
    return {
        "/" if file.name == INDEX else f"/page/{file.name}": Page(
            HTTPStatus.OK, KINDS[suffix], file.read_bytes(), headers
        )
        for file in resources.files("neo.admin.page.static").iterdir()
        if (suffix := file.name.rpartition(".")[2]) in KINDS
    }
