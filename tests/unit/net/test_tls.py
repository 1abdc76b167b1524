"""TLS between two links in memory: what works, what is refused, and what each side is told."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from neo.net.connection import HANDSHAKE, Connection
from neo.net.tls import TlsLink, tls_context
from neo.protocol.errors import HandshakeError
from tests.support.certificates import Authority, NodeFiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def files(authority: Authority) -> NodeFiles:
    return authority.node()


def context(files: NodeFiles, server: bool) -> ssl.SSLContext:
    return tls_context(files.ca, files.cert, files.key, server)


class Side:
    """One end: its link, the plaintext that came, and why it gave up."""

    def __init__(self, ssl_context: ssl.SSLContext, server: bool) -> None:
        self.link = TlsLink(ssl_context, server)
        self.outgoing = self.link.start()
        self.plain = b""
        self.error = ""

    def send(self, data: bytes) -> None:
        self.outgoing += self.link.encrypt(data)

    def receive(self, raw: bytes) -> None:
        if self.error:
            return
        try:
            plain = self.link.decrypt(raw)
        except HandshakeError as e:
            self.error = str(e)
            self.outgoing += self.link.farewell()
        else:
            self.plain += plain
            self.outgoing += self.link.outgoing()


def exchange(dialer: Side, server: Side, portion: int = 1 << 20) -> None:
    """Carry bytes both ways until nothing is left."""
    while dialer.outgoing or server.outgoing:
        for one, other in ((dialer, server), (server, dialer)):
            data, one.outgoing = one.outgoing, b""
            for i in range(0, len(data), portion):
                other.receive(data[i : i + portion])


def pair(dialer_files: NodeFiles, server_files: NodeFiles) -> tuple[Side, Side]:
    return (
        Side(context(dialer_files, server=False), server=False),
        Side(context(server_files, server=True), server=True),
    )


@pytest.mark.parametrize("portion", [1, 100, 1 << 20])
def test_what_is_sent_arrives(files: NodeFiles, portion: int) -> None:
    dialer, server = pair(files, files)
    dialer.send(b"early")  # before the handshake is over
    server.send(b"hello")
    exchange(dialer, server, portion)
    big = bytes(range(256)) * 400
    dialer.send(big)
    server.send(big)
    exchange(dialer, server, 1000 if portion == 1 else portion)
    assert (server.plain, dialer.plain) == (b"early" + big, b"hello" + big)
    assert not dialer.error
    assert not server.error


def test_several_handshakes_use_one_context_and_nothing_is_readable_on_the_line(
    files: NodeFiles,
) -> None:
    client_context, server_context = context(files, False), context(files, True)
    for _ in range(3):
        dialer, server = Side(client_context, False), Side(server_context, True)
        exchange(dialer, server)
        secret = b"secret" * 100
        dialer.send(secret)
        assert b"secret" not in dialer.outgoing
        assert len(dialer.outgoing) > len(secret)
        exchange(dialer, server)
        assert server.plain == secret


@pytest.mark.parametrize("data", [HANDSHAKE, b"GET / HTTP/1.1\r\n\r\n", b"\x00"])
def test_plaintext_to_a_tls_server(files: NodeFiles, data: bytes) -> None:
    """Specification 22.8."""
    server = Side(context(files, True), server=True)
    server.receive(data)
    assert server.error.startswith("this node uses TLS and the peer does not: give all nodes ca,")
    assert repr(data[:16]) in server.error
    with pytest.raises(HandshakeError, match="the peer uses TLS and this node does not"):
        list(Connection(server=False).receive(server.outgoing))


def test_a_tls_dialer_of_a_plaintext_server(files: NodeFiles) -> None:
    dialer = Side(context(files, False), server=False)
    with pytest.raises(HandshakeError, match="the peer uses TLS and this node does not"):
        list(Connection(server=True).receive(dialer.outgoing))
    dialer.receive(HANDSHAKE)
    assert dialer.error.startswith("this node uses TLS and the peer does not")


def test_an_alert_as_first_word_is_tls(files: NodeFiles) -> None:
    dialer = Side(context(files, False), server=False)
    dialer.receive(bytes.fromhex("15030300020228"))
    assert dialer.error.startswith("TLS failed: ")
    assert "does not" not in dialer.error


def test_a_server_of_another_authority(folder: Path, files: NodeFiles) -> None:
    dialer, server = pair(files, Authority(folder, "stranger").node())
    exchange(dialer, server)
    assert dialer.error.startswith("TLS failed: self-signed certificate in certificate chain; each")
    assert server.error.startswith("TLS failed: ")
    assert "unknown ca" in server.error


def test_a_dialer_of_another_authority_learns_it_after_its_handshake(
    folder: Path, files: NodeFiles
) -> None:
    foreign = Authority(folder, "foreign").node()
    dialer, server = pair(NodeFiles(files.ca, foreign.cert, foreign.key), files)
    dialer.send(HANDSHAKE)
    exchange(dialer, server)
    assert server.error.startswith("TLS failed: unable to get local issuer certificate; each node")
    assert "unknown ca" in dialer.error
    assert server.plain == b""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_dialer_without_certificate(files: NodeFiles, version: ssl.TLSVersion) -> None:
    """Specification 2.1."""
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.check_hostname = False
    anonymous.load_verify_locations(files.ca)
    anonymous.maximum_version = version
    dialer, server = Side(anonymous, False), Side(context(files, True), True)
    dialer.send(HANDSHAKE)
    exchange(dialer, server)
    assert server.error == (
        "TLS failed: peer did not return a certificate; each node needs a certificate that is "
        "valid now, of the same authority"
    )
    assert dialer.error.startswith("TLS failed: ")
    assert "alert" in dialer.error
    assert server.plain == b""


def test_expired_certificates(authority: Authority, files: NodeFiles) -> None:
    expired = authority.node("old", expired=True)
    dialer, server = pair(expired, files)
    exchange(dialer, server)
    assert server.error.startswith("TLS failed: certificate has expired;")
    assert "certificate expired" in dialer.error
    dialer, server = pair(files, expired)
    exchange(dialer, server)
    assert dialer.error.startswith("TLS failed: certificate has expired;")
    assert "certificate expired" in server.error


def closed(side: Side) -> bool:
    """Whether the other side said that the stream ends here."""
    try:
        return not side.link._ssl.read(1)
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLWantReadError:
        return False


def test_a_farewell_says_that_the_stream_is_whole(files: NodeFiles) -> None:
    dialer, server = pair(files, files)
    assert dialer.link.farewell() == b"", "there is no session yet"
    exchange(dialer, server)
    dialer.send(b"the last")
    exchange(dialer, server)
    assert not closed(server)
    dialer.outgoing += dialer.link.farewell()
    exchange(dialer, server)
    assert server.plain == b"the last"
    assert closed(server)


def test_garbage_in_the_middle_of_a_session(files: NodeFiles) -> None:
    dialer, server = pair(files, files)
    dialer.send(b"x")
    exchange(dialer, server)
    server.receive(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert server.error.startswith("TLS failed: ")


def test_old_versions_are_refused(files: NodeFiles) -> None:
    """Specification 22.8."""
    for server in (True, False):
        assert context(files, server).minimum_version >= ssl.TLSVersion.TLSv1_2


def test_files_that_cannot_be_used_are_named(folder: Path, files: NodeFiles) -> None:
    missing = str(folder / "missing.pem")
    garbage = folder / "garbage.pem"
    garbage.write_text("no certificate")
    other_key = Authority(folder, "other").node().key
    for ca in (missing, str(garbage)):
        with pytest.raises(ValueError, match="certificate authority '.*' cannot be used: "):
            tls_context(ca, files.cert, files.key, server=True)
    for cert, key in (
        (missing, files.key),
        (files.cert, missing),
        (str(garbage), files.key),
        (files.cert, other_key),
    ):
        with pytest.raises(ValueError, match="certificate '.*' with key '.*' cannot be used: "):
            tls_context(files.ca, cert, key, server=False)


def test_an_encrypted_key_is_refused_instead_of_asking_at_the_terminal(
    folder: Path, files: NodeFiles
) -> None:
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    encrypted = folder / "encrypted.pem"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ValueError, match=r"key '.*encrypted\.pem' is encrypted"):
        tls_context(files.ca, files.cert, str(encrypted), server=True)
