"""Settings of the admin node for its pages: what is refused at start (specification 17.60)."""

from __future__ import annotations

import socket
from http import HTTPStatus
from pathlib import Path

import pytest

from neo.admin.__main__ import load_settings
from neo.admin.page.accounts import Accounts, hash_password
from neo.node.config import ConfigError
from neo.node.core_life import StartFailure
from neo.node.http import TEXT, Page, serve_http

NODE = ["--cluster", "shop", "--masters", "10.0.0.1:2050", "--bind", "2052"]
NOTHING = Page(HTTPStatus.NOT_FOUND, TEXT, b"")


def test_passwords_need_a_page_that_others_cannot_read_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    words = [*NODE, "--http-passwords", str(file)]
    for more, why in (
        ([], "needs 'http'"),
        (["--http", "10.0.0.1:9050"], "set ca, cert and key, or write http = 9050"),
        (["--http", "9050"], f"neoctl password {file} NAME"),
    ):
        with pytest.raises(ConfigError, match=why):
            load_settings([*words, *more])
    Accounts(str(file)).set("ada", hash_password("correct horse"))
    assert load_settings([*words, "--http", "9050"]).http_passwords == str(file)
    file.chmod(0o604)
    with pytest.raises(ConfigError, match="other users can read or change it: chmod 600"):
        load_settings([*words, "--http", "9050"])


def test_a_port_of_http_that_another_node_has_is_refused_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        settings = load_settings([*NODE, "--http", str(busy.getsockname()[1])])
        with pytest.raises(StartFailure, match="for HTTP: .* in use; .* not into \\[DEFAULT\\]"):
            serve_http(settings, lambda path: NOTHING)
