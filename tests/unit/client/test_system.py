"""The client's sockets."""

from __future__ import annotations

from pathlib import Path

from neo.client.system import System
from neo.net.connection import HANDSHAKE
from neo.net.tls import TlsLink, tls_context
from tests.support.certificates import Authority
from tests.support.tls_peer import SECONDS, TlsPeer


def test_the_end_of_a_tls_stream_is_announced(tmp_path: Path) -> None:
    files = Authority(tmp_path).node()
    system = System(SECONDS)
    try:
        with TlsPeer(tls_context(*files, server=True)) as peer:
            link = TlsLink(tls_context(*files, server=False), server=False)
            wire = system.connect(peer.address, link)
            received = b""
            while received != HANDSHAKE:
                received += wire.receive(True) or b""
            wire.end()
            wire.close()
    finally:
        system.stop()
    assert peer.end is None
