"""The web page over HTTP: its files, ``/api/status`` (specification 17.51), and its commands.

Threads of requests call it; it asks the core on the core's own thread.
"""

from __future__ import annotations

from concurrent.futures import Future
from http import HTTPStatus
from importlib import resources
from typing import Any, Protocol

from neo.admin.facts import Data
from neo.admin.page.access import Access
from neo.admin.page.answers import HEADERS, json_page, refusal
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


class Teller(Protocol):
    def tell(self, done: Done) -> None:
        """Call ``done`` with the data of the page. Called on the thread of the core."""


class Site:
    def __init__(self, overview: Teller, from_thread: FromThread, access: Access) -> None:
        self._overview = overview
        self._access = access
        self._from_thread = from_thread
        self._files = _files()

    def __call__(self, request: Request) -> Page | None:
        """Return the page of a request, None if it is none of the site's."""
        if request.path == "/api/status":
            return self._status(request)
        page = self._access(request)
        if page is not None:
            return page
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
