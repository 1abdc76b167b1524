"""The files of the web page, and its headers (specification 17.51)."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from neo.admin.page.overview import Done
from tests.page.scripted import Invented, invented, served
from tests.support.patience import PATIENCE_SECONDS

STATIC = Path(__file__).parents[4] / "neo" / "admin" / "page" / "static"


@pytest.fixture
def url() -> Iterator[str]:
    with served(Invented(invented())) as url:
        yield url


def get(url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, Message, str]:
    request = urllib.request.Request(url, body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.headers, e.read().decode()


def test_each_file_is_served_with_headers_that_let_nothing_else_in(url: str) -> None:
    kinds = {"/": "text/html", "page/main.js": "text/javascript", "page/style.css": "text/css"}
    for path, kind in kinds.items():
        status, headers, text = get(url + path.lstrip("/"))
        assert status == 200 and headers["Content-Type"].startswith(kind) and text
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-cache"
    for path in ("page/", "page/nothing.js", "page/../site.py", "page/index.html", "api/"):
        assert get(url + path)[0] == 404


def test_status_is_json_that_no_cache_keeps(url: str) -> None:
    status, headers, text = get(url + "api/status?x=1")
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-store"
    assert json.loads(text)["status"]["primary"] == "M1"
    assert get(url + "api/status", "POST", b"{}")[0] == 405
    assert get(url, "POST", b"{}")[0] == 405
    assert get(url, "POST", b" " * 5000)[0] == 413


def test_a_core_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Invented):
        def tell(self, done: Done) -> None:
            pass

    monkeypatch.setattr("neo.admin.page.site.TIMEOUT_SECONDS", 0.05)
    with served(Silent({})) as url:
        status, _, text = get(url + "api/status")
    assert status == 503 and "does not answer" in json.loads(text)["error"]["message"]


def test_files_import_only_each_other_and_make_no_html_of_text() -> None:
    names = {path.name for path in STATIC.glob("*.*s")}
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        imports = re.findall(r'from "(.*?)"', text)
        assert all(each.removeprefix("./") in names for each in imports), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    page = (STATIC / "index.html").read_text()
    assert "<style" not in page and "onclick" not in page and not re.search(r"<script[^>]*>[^<]", page)
    for path in STATIC.glob("*.[hcjs]*"):
        links = re.findall(r"https?://[^\s\"']+", path.read_text())
        assert set(links) <= {"http://www.w3.org/2000/svg"}, f"{path} asks another host"
