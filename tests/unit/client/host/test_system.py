"""The client's sockets."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from neo.client.host.system import System
from neo.net.connection import HANDSHAKE
from neo.net.tls import TlsLink, tls_context
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_SECONDS
from tests.support.resets import reset
from tests.support.tls_peer import TlsPeer


def test_what_is_sent_while_the_handshake_ends_leaves_after_it(tmp_path: Path) -> None:
    """One thread has decrypted the server's part of the handshake when another thread sends."""
    files = Authority(tmp_path).node()
    system = System(PATIENCE_SECONDS)

    class Link(TlsLink):
        def decrypt(self, raw: bytes) -> bytes:
            plain = super().decrypt(raw)
            if not sent:
                sent.append(True)
                wire.send([HANDSHAKE])
            return plain

    sent: list[bool] = []
    try:
        with TlsPeer(tls_context(*files, server=True)) as peer:
            wire = system.connect(peer.address, Link(tls_context(*files, server=False), False))
            received: list[bytes] = []
            while b"".join(received) != HANDSHAKE:
                wire.receive(received, True)
            wire.end()
            wire.close()
    finally:
        system.stop()
    assert peer.end is None


@pytest.mark.parametrize(
    ("address", "text"),
    [(("b..example", 7000), "cannot connect to b..example:7000: "), (("127.0.0.1", 2**64), None)],
)
def test_an_address_that_is_none_cannot_be_reached(address: tuple[str, int], text: str | None) -> None:
    """Another node announced the address. For a wrong port, the error depends on the version of
    Python."""
    with pytest.raises(OSError, match=text):
        System(PATIENCE_SECONDS).connect(address, None)


def test_the_last_words_are_read_when_nothing_can_be_sent_any_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wire = System(PATIENCE_SECONDS).connect(server.getsockname(), None)
        sock, _ = server.accept()
        sock.sendall(b"why")
        reset(sock)
        for _ in range(2):
            wire.send([b"more"])
        received: list[bytes] = []
        assert wire.receive(received, True) and wire.receive(received, True)
        assert received == [b"why", b""]
        wire.close()


def test_the_end_of_a_tls_stream_is_announced(tmp_path: Path) -> None:
    files = Authority(tmp_path).node()
    system = System(PATIENCE_SECONDS)
    try:
        with TlsPeer(tls_context(*files, server=True)) as peer:
            link = TlsLink(tls_context(*files, server=False), server=False)
            wire = system.connect(peer.address, link)
            received: list[bytes] = []
            while b"".join(received) != HANDSHAKE:
                wire.receive(received, True)
            wire.end()
            wire.close()
    finally:
        system.stop()
    assert peer.end is None
