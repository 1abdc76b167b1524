"""Answers of the web page: their headers, data as JSON, refusals."""

from __future__ import annotations

import json
from http import HTTPStatus

from neo.admin.facts import Data
from neo.node.http import Page

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


def json_page(data: Data, status: HTTPStatus = HTTPStatus.OK, *more: tuple[str, str]) -> Page:
    """Return data as a page that no cache keeps. ``more``: headers."""
    return Page(status, JSON, json.dumps(data).encode(), (*HEADERS, ("Cache-Control", "no-store"), *more))


def refusal(status: HTTPStatus, message: str, hint: str = "", *more: tuple[str, str]) -> Page:
    """Return an error as ``neoctl --json`` has it. ``more``: headers."""
    return json_page({"error": {"message": message, "hint": hint}}, status, *more)
