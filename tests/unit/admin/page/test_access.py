"""Signing in on the web page: who cannot command, and what a command needs (specification 17.60)."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from neo.admin.page.access import Access
from neo.admin.page.accounts import hash_password
from neo.admin.page.commanding import Wanted
from neo.admin.page.sessions import (
    ALL_ATTEMPTS_MAX,
    ATTEMPT_SECONDS,
    ATTEMPTS_MAX,
    IDLE_SECONDS,
    LIFE_SECONDS,
    SESSIONS_MAX,
    Attempts,
    Sessions,
)
from neo.node.http import Request
from tests.page.scripted import HASH, PASSWORD, Invented, Signing, invented, served
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture
def world(tmp_path: Path) -> Signing:
    return Signing(tmp_path)


class Browser:
    """Sends what it is told, and keeps a cookie."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookie = ""
        self.token = ""

    def post(self, path: str, **words: Any) -> tuple[int, dict[str, Any]]:
        status, _, data = self.send(path, json.dumps(words).encode())
        return status, data

    def send(
        self, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, Message, dict[str, Any]]:
        own = {"Cookie": self.cookie, "X-NEO-Token": self.token, "Content-Type": "application/json"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.url}api/{path}", body, {**own, **named})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, answer.headers, json.loads(answer.read())
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.headers, json.loads(e.read())

    def sign_in(self, name: str = "ada", password: str = PASSWORD) -> int:
        words = {"name": name, "password": password}
        status, headers, data = self.send("sign-in", json.dumps(words).encode())
        if status == HTTPStatus.OK:
            self.cookie = headers["Set-Cookie"].partition(";")[0]
            self.token = data["token"]
        return status

    def command(self, seal: str = "seal") -> int:
        return self.post("execute", action="tweak", subject="", seal=seal)[0]


@contextmanager
def browsing(world: Signing) -> Iterator[Browser]:
    with served(Invented(invented()), world.access) as url:
        yield Browser(url)


def test_a_command_is_shown_executed_and_logged(
    world: Signing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "neo.admin")
    with browsing(world) as browser:
        assert browser.sign_in() == 200
        assert browser.send("session")[2]["name"] == "ada"
        status, shown = browser.post("preview", action="end", subject="0x12")
        assert status == 200 and shown["will"] == "It happens." and shown["seal"] == "seal"
        assert world.commander.done == []
        status, told = browser.post("execute", action="end", subject="0x12", seal="seal")
        assert (status, told) == (200, {"text": "done it", "name": "ada"})
        assert world.commander.done == [Wanted("end", "0x12")]
        # What was shown is not what would be done.
        status, data = browser.post("execute", action="end", subject="0x12", seal="another")
        assert status == 409 and data["error"]["hint"] == "look again"
        assert browser.post("execute", action="truncate", subject="0", seal="seal")[0] == 400
        assert browser.post("execute", action="end", subject=12, seal="seal")[0] == 400
        assert browser.send("preview", b"[" * 4000)[0] == 400
        assert browser.post("sign-out")[0] == 200
        assert browser.command() == 401, "the cookie that was given is worth nothing"
    assert len(world.commander.done) == 1
    said = caplog.text
    assert "ada from 127.0.0.1 commands: 'neoctl end 0x12'" in said and "is done: done it" in said
    assert PASSWORD not in said and "is refused: it would not" in said


def test_who_is_not_signed_in_commands_nothing(world: Signing) -> None:
    with browsing(world) as browser:
        assert browser.send("session")[2] == {"name": None, "token": None, "closed": ""}
        assert browser.command() == 401
        assert browser.post("preview", action="tweak", subject="")[0] == 401
        browser.cookie = f"{world.access._cookie}=guessed"
        assert browser.command() == 401
        assert browser.sign_in() == 200
        token, browser.token = browser.token, ""
        assert browser.command() == 403, "no token"
        browser.token = token[:-1] + ("A" if token[-1] != "A" else "B")
        assert browser.command() == 403, "a wrong token"
        browser.token = token
        # Pages of other sites: a browser adds the cookie, and says whose request it is.
        body = b'{"action": "tweak", "subject": "", "seal": "seal"}'
        assert browser.send("execute", body, Origin="https://evil.example")[0] == 403
        assert browser.send("execute", body, Origin="null")[0] == 403
        assert browser.send("execute", body, Content_Type="text/plain")[0] == 415
        assert browser.send("execute")[0] == 405, "nothing is done by GET"
        assert world.commander.done == []
        assert browser.send("execute", body, Origin=browser.url.rstrip("/"))[0] == 200


def test_the_cookie_is_for_this_server_and_for_no_script(world: Signing) -> None:
    body = json.dumps({"name": "ada", "password": PASSWORD}).encode()
    with browsing(world) as browser:
        cookie = browser.send("sign-in", body)[1]["Set-Cookie"]
    assert {"Path=/", "HttpOnly", "SameSite=Strict"} == set(cookie.split("; ")[1:])
    headers = Message()
    headers["Content-Type"] = "application/json"
    page = world.access(Request("POST", "/api/sign-in", headers, body, True, True, "10.0.0.7"))
    assert page is not None and "; Secure" in dict(page.headers)["Set-Cookie"], "over TLS"


def test_passwords_are_not_taken_where_others_can_read_them(world: Signing) -> None:
    headers = Message()
    headers["Content-Type"] = "application/json"
    for path, body in (
        ("sign-in", {"name": "ada", "password": PASSWORD}),
        ("execute", {"action": "tweak", "subject": "", "seal": "seal"}),
    ):
        raw = json.dumps(body).encode()
        page = world.access(Request("POST", f"/api/{path}", headers, raw, False, False, "10.0.0.7"))
        assert page is not None and page.status == 403 and b"needs TLS" in page.body
    page = world.access(Request("GET", "/api/session", Message(), b"", False, False, "10.0.0.7"))
    assert page is not None and b"needs TLS" in page.body
    nobody = Access("shop", None, None, lambda: 0.0)
    page = nobody(Request("POST", "/api/sign-in", headers, b"{}", True, True, "10.0.0.7"))
    assert page is not None and page.status == 403 and b"http_passwords" in page.body


def test_attempts_with_a_wrong_password_are_bounded(
    world: Signing, caplog: pytest.LogCaptureFixture
) -> None:
    with browsing(world) as browser:
        assert browser.sign_in(password="wrong") == 403
        assert browser.sign_in(name="eve") == 403
        assert browser.sign_in() == 200, "which forgets the two"
        for _ in range(ATTEMPTS_MAX):
            assert browser.sign_in(password="wrong") == 403
        body = json.dumps({"name": "ada", "password": PASSWORD}).encode()
        status, headers, data = browser.send("sign-in", body)
        assert status == 429 and headers["Retry-After"] == "300", "the right one neither"
        assert "300 s" in data["error"]["message"]
        assert browser.command() == 200, "who is signed in already works on"
        world.now += ATTEMPT_SECONDS
        assert browser.sign_in() == 200
    assert "wrong name or password for the web page, from 127.0.0.1" in caplog.text


def test_attempts_from_many_addresses_are_bounded_together() -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    for n in range(ALL_ATTEMPTS_MAX):
        assert attempts.admit(f"10.0.0.{n}") == 0.0
        now[0] += 1
    assert attempts.admit("10.0.1.1") == ATTEMPT_SECONDS - ALL_ATTEMPTS_MAX
    now[0] += ATTEMPT_SECONDS - ALL_ATTEMPTS_MAX
    assert attempts.admit("10.0.1.1") == 0.0
    assert attempts.admit("10.0.1.2") == 1.0


def test_sessions_end_by_themselves_and_are_bounded(world: Signing) -> None:
    with browsing(world) as browser:
        assert browser.sign_in() == 200
        world.now += IDLE_SECONDS - 1
        assert browser.command() == 200
        world.now += IDLE_SECONDS - 1
        assert browser.send("session")[2]["name"] == "ada", "the command was later than the begin"
        world.now += 1
        assert browser.send("session")[2]["name"] is None, "and to ask is no command"
        assert browser.command() == 401
        assert browser.sign_in() == 200
        # Another password, or a name that is gone, ends the sessions.
        world.accounts.set("ada", hash_password("another password"))
        assert browser.command() == 401
    sessions = Sessions(lambda: world.now)
    cookies = [sessions.begin("ada", HASH)[0] for _ in range(SESSIONS_MAX + 1)]
    assert [sessions.find(cookie) is not None for cookie in cookies] == [False] + [True] * SESSIONS_MAX
    kept = sessions.find(cookies[1])
    assert kept is not None
    for _ in range(int(LIFE_SECONDS / IDLE_SECONDS) * 2):
        sessions.touch(kept)
        assert sessions.find(cookies[1]) is kept
        world.now += IDLE_SECONDS / 2
    assert sessions.find(cookies[1]) is None, "a session that works ends, too"


def test_a_file_that_others_can_read_lets_nobody_in(
    world: Signing, caplog: pytest.LogCaptureFixture
) -> None:
    with browsing(world) as browser:
        assert browser.sign_in() == 200
        world.file.chmod(0o644)
        assert browser.command() == 401
        assert browser.sign_in() == 503
        assert f"chmod 600 {world.file}" in caplog.text
        world.file.chmod(0o600)
        world.file.write_text("ada:md5:1:2\n")
        assert browser.sign_in() == 503
        assert "line 1: not what 'neoctl password' writes" in caplog.text
        world.file.unlink()
        assert browser.sign_in() == 503
