"""Authentication at the admin port, and the limits of its commands."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from neo.transactor.config import ConfigError, load
from neo.transactor.disk import StoreError
from neo.transactor.service import STRANGER_TICKS, STRANGERS_MAX
from neo.transactor.session import HELP, SERVICE
from neo.transactor.sockets import local_listener
from neo.transactor.text import STRANGER_LINE_MAX, response
from tests.unit.transactor.talking import Host

CHALLENGE = "00ff"
HTTP = b"POST /debugfile HTTP/1.1\r\nHost: localhost:7002\r\n\r\nterminate\r\ndump x\r\n"


def test_an_operator_answers_the_challenge_with_the_secret() -> None:
    """Specification 20.50."""
    host = Host(admin_secret="for operators", secret="for applications")
    operator = host.client(admin=True, challenge=CHALLENGE)
    assert operator.got() == b"challenge 00ff\n"
    right = response("for operators", CHALLENGE)
    assert operator.say(f"authenticate {right}\ngettid\n".encode()) == (
        b"authenticated\ntlog_tid 0\n"
    )
    assert operator.say(b"remove_peer\n").startswith(b"error: remove_peer has 0 arguments")
    assert not operator.closed


@pytest.mark.parametrize(
    "line",
    [
        b"terminate\n",
        b"help\n",
        b"authenticate x\n",
        b"authenticate %s\n" % response("for applications", CHALLENGE).encode(),
        b"authenticate %s\n" % response("for operators", "11ff").encode(),
        b'authenticate "for operators"\n',
        b"post 1 1 9\n123456789\n",
        b"x" * (STRANGER_LINE_MAX + 1),
        b"authenticate " + b"x" * STRANGER_LINE_MAX + b"\n",
        HTTP,
    ],
)
def test_a_stranger_at_the_admin_port_is_cut_off_at_once(line: bytes) -> None:
    host = Host(admin_secret="for operators", secret="for applications")
    stranger = host.client(admin=True, challenge=CHALLENGE)
    stranger.got()
    assert stranger.say(line + b"terminate\n").startswith(b"error: ")
    assert stranger.closed and not host.ended
    assert host.specs == []


def test_a_stranger_cannot_make_a_transactor_keep_data() -> None:
    """A post announces its size in its line: without the secret, the service port refuses that line."""
    client = Host(secret="for applications").client()
    assert client.say(b"post 1 1 60000000\n").startswith(b'error: authenticate "secret" must be')
    assert client.closed


def test_strangers_are_few_and_do_not_stay() -> None:
    """Specification 20.50."""
    host = Host(admin_secret="x")
    strangers = [host.client(admin=True, challenge=CHALLENGE) for _ in range(STRANGERS_MAX)]
    assert host.service.open(strangers[0], True, "one more", CHALLENGE) is None
    assert strangers[0].got().endswith(b"error: too many connections, try again later\n")
    assert host.client(admin=True).say(b"gettid\n") == b"tlog_tid 0\n"
    right = response("x", CHALLENGE).encode()
    assert strangers[1].say(b"authenticate %s\n" % right).endswith(b"authenticated\n")
    host.tick(STRANGER_TICKS)
    assert [each.closed for each in strangers[1:]] == [False, *[True] * (STRANGERS_MAX - 2)]
    host.client(admin=True, challenge=CHALLENGE)


@pytest.mark.parametrize("admin", [False, True])
def test_a_web_page_cannot_give_commands(admin: bool) -> None:
    """The first line is no command, so nothing after it is read."""
    host = Host()
    page = host.client(admin)
    assert page.say(HTTP) == b"error: unknown command 'POST'; see help\n"
    assert page.closed and not host.ended and host.lines == []


def test_a_mistake_in_a_command_does_not_end_the_connection_of_an_operator() -> None:
    operator = Host().client(admin=True)
    for line in (b'add_peer "x\n', b"add_peer x\n", b"debugmask +no\n", b"post 1 1 1\nab\n"):
        assert operator.say(line).startswith(b"error: ") and not operator.closed


@pytest.mark.parametrize("word", sorted(HELP.keys() - SERVICE))
def test_commands_of_operators_are_refused_to_application_servers(word: str) -> None:
    """Specification 20.39."""
    host = Host()
    client, usage = host.client(), HELP[word]
    line = " ".join([word, *["1"] * usage.least])
    assert client.say(line.encode() + b"\n").decode() == (
        f"error: {word} is a command of the admin port\n"
    )
    assert client.closed and not host.ended and host.service.serving


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/b", ".hidden", '""', "x" * 101, "a~"])
@pytest.mark.parametrize("word", ["dump", "debugfile"])
def test_files_have_plain_names(word: str, name: str) -> None:
    """Specification 20.52."""
    host = Host()
    operator = host.client(admin=True)
    assert operator.say(f"{word} {name}\n".encode()).startswith(b"error: a file is written into")
    assert host.lines == [] and not operator.closed


def test_stop_is_answered_before_connections_close() -> None:
    host = Host()
    client, operator = host.client(), host.client(admin=True)
    order: list[str] = []
    client.close = lambda: order.append("closed")  # type: ignore[method-assign]
    operator.write = lambda data: order.append(data.decode())  # type: ignore[method-assign]
    operator.say(b"stop\n")
    assert order == ["stopped\n", "closed"]


CONFIG = """
[transactor]
name = a
service = 127.0.0.1:1
tlog = {folder}/tlog
mlog = {folder}/mlog
{more}
[peers]
a = 127.0.0.1:3
"""


def configured(tmp_path: Path, more: str = "") -> Path:
    path = tmp_path / "conf"
    path.write_text(CONFIG.format(folder=tmp_path, more=more))
    return path


def test_operators_have_a_socket_unless_a_port_and_a_secret_are_given(tmp_path: Path) -> None:
    config = load(str(configured(tmp_path)))
    assert config.admin == str(tmp_path / "admin.sock")
    assert config.debug_folder == str(tmp_path / "debug")
    config = load(str(configured(tmp_path, "admin = /run/a.sock\ndebug_folder = /tmp/d")))
    assert (config.admin, config.debug_folder) == ("/run/a.sock", "/tmp/d")
    with pytest.raises(ConfigError, match="'admin_secret' is missing: any client that reaches 127"):
        load(str(configured(tmp_path, "admin = 127.0.0.1:2")))
    config = load(str(configured(tmp_path, "admin = 127.0.0.1:2\nadmin_secret = s")))
    assert (config.admin, config.admin_secret) == (("127.0.0.1", 2), "s")


def test_the_socket_is_for_the_own_user_and_replaces_what_a_killed_one_left(tmp_path: Path) -> None:
    """Specification 20.50."""
    path = str(tmp_path / "admin.sock")
    before = os.umask(0o022)
    try:
        local_listener(path).close()
        with local_listener(path), socket.socket(socket.AF_UNIX) as client:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            client.connect(path)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    (tmp_path / "file").write_text("precious")
    for wrong in (str(tmp_path / "file"), "/no/such/folder/s", f"/tmp/{'x' * 200}"):
        with pytest.raises(StoreError, match=f"cannot listen on {wrong}"):
            local_listener(wrong)
    assert (tmp_path / "file").read_text() == "precious"
