"""Signing in on the web page, and its commands, over HTTP (specification 17.60 to 17.64).

Threads of requests call it.
"""

from __future__ import annotations

import hmac
import json
import logging
import math
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from neo.admin.facts import Data
from neo.admin.page.accounts import Accounts
from neo.admin.page.answers import json_page, refusal
from neo.admin.page.commanding import Commander, Refused, Shown, Wanted
from neo.admin.page.sessions import Attempts, Clock, Session, Sessions
from neo.node.http import Page, Request

logger = logging.getLogger("neo.admin")

#: What a page repeats with each command. A page of another site cannot send it.
TOKEN_HEADER = "X-NEO-Token"
ACTIONS = ("abort", "end", "tweak")
NOT_SET_UP = "nobody can sign in: the admin node has no setting 'http_passwords'"
NOT_PRIVATE = (
    "signing in needs TLS, or an address of loopback: others could read the password on its way"
)


class Denied(Exception):
    """The request is not served. ``more``: headers."""

    def __init__(self, status: HTTPStatus, message: str, hint: str = "", *more: tuple[str, str]) -> None:
        super().__init__(message)
        self.page = refusal(status, message, hint, *more)


class Signed(NamedTuple):
    """A session, and the cookie that names it."""

    session: Session
    cookie: str


class Access:
    """``cluster``: its name. ``accounts`` and ``commander``: None if nobody can sign in."""

    def __init__(
        self, cluster: str, accounts: Accounts | None, commander: Commander | None, clock: Clock
    ) -> None:
        # Browsers send cookies to all ports of a host: two clusters must not take them from each other.
        self._cookie = f"neo-{sha256(cluster.encode()).hexdigest()[:16]}"
        self._accounts = accounts
        self._commander = commander
        self._sessions = Sessions(clock)
        self._attempts = Attempts(clock)
        self._paths: dict[str, Callable[[Request], Page]] = {
            "/api/sign-in": self._sign_in,
            "/api/sign-out": self._sign_out,
            "/api/preview": self._preview,
            "/api/execute": self._execute,
        }

    def __call__(self, request: Request) -> Page | None:
        """Return the page of a request, None if it is about something else."""
        if request.path == "/api/session":
            return self._session(request)
        serve = self._paths.get(request.path)
        if serve is None:
            return None
        try:
            _check_sender(request)
            return serve(request)
        except Denied as e:
            return e.page

    # -- sessions ----------------------------------------------------------------------------------

    def _session(self, request: Request) -> Page:
        """Tell who is signed in, and why nobody can."""
        signed = self._signed(request)
        why = NOT_SET_UP if self._accounts is None else "" if request.private else NOT_PRIVATE
        return json_page(_told(None if signed is None else signed.session, why))

    def _sign_in(self, request: Request) -> Page:
        accounts = self._open(request)
        name, password = _words(request, "name", "password")
        wait = self._attempts.admit(request.peer)
        if wait:
            logger.warning("too many attempts to sign in on the web page, the last from %s", request.peer)
            seconds = math.ceil(wait)
            raise Denied(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"too many attempts: try again in {seconds} s",
                "neoctl works meanwhile",
                ("Retry-After", str(seconds)),
            )
        try:
            hash = accounts.verify(name, password)
        except ValueError as e:
            logger.error("nobody can sign in on the web page: %s", e)
            raise Denied(
                HTTPStatus.SERVICE_UNAVAILABLE, "nobody can sign in now", "look at the admin node's log"
            ) from None
        if hash is None:
            # The name may be a password that was typed into the wrong field.
            logger.warning("wrong name or password for the web page, from %s", request.peer)
            raise Denied(HTTPStatus.FORBIDDEN, "wrong name or password")
        self._attempts.forgive(request.peer)
        cookie, session = self._sessions.begin(name, hash)
        logger.info("%s has signed in on the web page, from %s", name, request.peer)
        return json_page(_told(session), HTTPStatus.OK, self._set_cookie(request, cookie))

    def _sign_out(self, request: Request) -> Page:
        signed = self._known(request)
        self._sessions.end(signed.cookie)
        logger.info("%s has signed out of the web page, from %s", signed.session.name, request.peer)
        return json_page(_told(None), HTTPStatus.OK, self._set_cookie(request, ""))

    def _set_cookie(self, request: Request, value: str) -> tuple[str, str]:
        parts = [f"{self._cookie}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
        if not value:
            parts.append("Max-Age=0")
        if request.tls:
            parts.append("Secure")
        return "Set-Cookie", "; ".join(parts)

    def _signed(self, request: Request) -> Signed | None:
        try:
            found = SimpleCookie(request.headers.get("Cookie", "")).get(self._cookie)
        except CookieError:
            return None
        session = None if found is None else self._sessions.find(found.value)
        return None if found is None or session is None else Signed(session, found.value)

    def _open(self, request: Request) -> Accounts:
        """Return the accounts. Raise Denied if nobody can sign in here."""
        if self._accounts is None:
            raise Denied(HTTPStatus.FORBIDDEN, NOT_SET_UP, "see docs/web-page.md")
        if not request.private:
            raise Denied(HTTPStatus.FORBIDDEN, NOT_PRIVATE, "set ca, cert and key, or use ssh -L")
        return self._accounts

    def _known(self, request: Request) -> Signed:
        """Return the session of a request that its page made. Raise Denied for others."""
        accounts, signed = self._open(request), self._signed(request)
        if signed is not None and not accounts.still(signed.session.name, signed.session.hash):
            self._sessions.end(signed.cookie)  # the password was changed, or the name is gone
            signed = None
        if signed is None:
            raise Denied(HTTPStatus.UNAUTHORIZED, "you are not signed in, or not any more")
        given = request.headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode(), signed.session.token.encode()):
            raise Denied(HTTPStatus.FORBIDDEN, "the page is not of this session", "load it again")
        return signed

    # -- commands ----------------------------------------------------------------------------------

    def _preview(self, request: Request) -> Page:
        session, commander, wanted = self._wanted(request)
        try:
            shown = commander.preview(wanted)
        except Refused as e:
            return refusal(HTTPStatus.CONFLICT, str(e), e.hint)
        self._sessions.touch(session)
        return json_page(_shown(shown))

    def _execute(self, request: Request) -> Page:
        session, commander, wanted = self._wanted(request)
        (seal,) = _words(request, "seal")
        self._sessions.touch(session)
        # The log has it also if the answer never comes.
        who = f"{session.name} from {request.peer}"
        command = " ".join(["neoctl", *filter(None, wanted)])
        logger.info("web page: %s commands: %r", who, command)
        try:
            text = commander.execute(wanted, seal)
        except Refused as e:
            logger.warning("web page: %r of %s is refused: %s", command, who, e)
            return refusal(HTTPStatus.CONFLICT, str(e), e.hint)
        logger.info("web page: %r of %s is done: %s", command, who, " ".join(text.split()))
        return json_page({"text": text, "name": session.name})

    def _wanted(self, request: Request) -> tuple[Session, Commander, Wanted]:
        session = self._known(request).session
        action, subject = _words(request, "action", "subject")
        if action not in ACTIONS or self._commander is None:
            raise Denied(HTTPStatus.BAD_REQUEST, f"{action!r} is no command of this page")
        return session, self._commander, Wanted(action, subject)


def _check_sender(request: Request) -> None:
    """Raise Denied unless a page of this server made the request."""
    if request.method != "POST":
        raise Denied(HTTPStatus.METHOD_NOT_ALLOWED, "this is only posted")
    origin = request.headers.get("Origin")
    # Behind a tunnel the names are those that the browser knows: the same in both headers.
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        raise Denied(HTTPStatus.FORBIDDEN, "the request comes from a page of another server")
    # A form of another site cannot have this type.
    if request.headers.get_content_type() != "application/json":
        raise Denied(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "write JSON, and say so")


def _words(request: Request, *names: str) -> list[str]:
    """Return the texts of a body by their names. Raise Denied."""
    try:
        data: Any = json.loads(request.body)
    except (ValueError, RecursionError):
        data = None
    words = [data.get(name) for name in names] if isinstance(data, dict) else []
    texts = [word for word in words if isinstance(word, str)]
    if len(texts) < len(names):
        raise Denied(HTTPStatus.BAD_REQUEST, f"texts are expected: {', '.join(names)}")
    return texts


def _told(session: Session | None, why: str = "") -> Data:
    """Return ``name`` and ``token`` of a session, null without one; ``closed``: why nobody can sign in,
    empty if one can."""
    if session is None:
        return {"name": None, "token": None, "closed": why}
    return {"name": session.name, "token": session.token, "closed": why}


def _shown(shown: Shown) -> Data:
    return {"command": shown.command, "will": shown.will, "text": shown.text, "seal": shown.seal}
