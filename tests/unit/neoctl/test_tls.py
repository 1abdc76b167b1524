"""neoctl with TLS: certificates on both sides, or one line that says so."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from neo.net.tls import tls_context
from neo.protocol.packets import Ping, Pong
from neoctl import client
from neoctl.__main__ import main
from neoctl.client import AdminAway, AdminClient
from tests.support.certificates import Authority, NodeFiles
from tests.support.resets import reset
from tests.support.tls_peer import TlsPeer
from tests.unit.neoctl.conftest import healthy
from tests.unit.neoctl.scripted import ScriptedAdmin

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> NodeFiles:
    return Authority(tmp_path_factory.mktemp("tls")).node()


def options(files: NodeFiles) -> list[str]:
    return ["--ca", files.ca, "--cert", files.cert, "--key", files.key]


def test_both_sides_with_certificates_of_one_authority(files: NodeFiles, capsys: Capture) -> None:
    with ScriptedAdmin(healthy(), tls_context(*files, server=True)) as admin:
        assert main(["-a", admin.name, *options(files), "print", "primary"]) == 0
        assert main(["-a", admin.name, *options(files), "status"]) == 0
    assert capsys.readouterr().out.startswith("M1\n")


def test_the_end_is_announced(files: NodeFiles) -> None:
    with TlsPeer(tls_context(*files, server=True)) as peer:
        with AdminClient(peer.address, tls_context(*files, server=False)) as admin:
            assert admin.ask(Ping()) == Pong()
    assert peer.end is None


def test_a_connection_that_ends_before_the_first_byte(
    files: NodeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def end(sock: socket.socket) -> None:
            accepted, _ = listener.accept()
            reset(accepted)
            with suppress(ConnectionResetError):
                sock.recv(1)

        monkeypatch.setattr(client, "configure", end)
        with pytest.raises(AdminAway, match="cannot be reached"):
            AdminClient(listener.getsockname(), tls_context(*files, server=False))


def test_files_come_from_neo_conf(files: NodeFiles, capsys: Capture, tmp_path: Path) -> None:
    conf = tmp_path / "neo.conf"
    with ScriptedAdmin(healthy(), tls_context(*files, server=True)) as admin:
        conf.write_text(
            f"[DEFAULT]\nca = {files.ca}\ncert = {files.cert}\nkey = {files.key}\n"
            f"[admin]\nbind = {admin.name}\n"
        )
        assert main(["-f", str(conf), "print", "primary"]) == 0
    assert capsys.readouterr().out == "M1\n"


@pytest.mark.parametrize(
    ("admin", "ours", "words"),
    [
        pytest.param(
            "plain", "node", "this node uses TLS and the peer does not", id="plain admin node"
        ),
        pytest.param(
            "node",
            "plain",
            "do both sides use TLS|the peer uses TLS and this node does not",
            id="admin node with TLS",
        ),
        pytest.param("stranger", "node", "same authority", id="another authority"),
    ],
)
def test_an_admin_node_with_other_certificates_is_recognised(
    files: NodeFiles, capsys: Capture, tmp_path: Path, admin: str, ours: str, words: str
) -> None:
    theirs = Authority(tmp_path).node() if admin == "stranger" else files
    tls = None if admin == "plain" else tls_context(*theirs, server=True)
    with ScriptedAdmin(healthy(), tls) as peer:
        given = options(files) if ours == "node" else []
        assert main(["-a", peer.name, *given, "print", "primary"]) == 1
    err = capsys.readouterr().err
    assert re.search(words, err)
    assert err.count("\n") == 1


def test_missing_file_is_named(files: NodeFiles, capsys: Capture, tmp_path: Path) -> None:
    lost = files._replace(cert=str(tmp_path / "lost.pem"))
    assert main(["-a", "127.0.0.1:1", *options(lost), "start"]) == 1
    assert "lost.pem" in capsys.readouterr().err
