"""TLS with plaintext and wrong certificates, with real processes: the logs say the reason."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.net.connection import HANDSHAKE
from neo.net.tls import tls_context
from neo.protocol.packets import Ping, Pong
from tests.faults.bad_peers import ROLES, Patient
from tests.support.certificates import Authority, NodeFiles
from tests.support.raw import RawPeer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def files(authority: Authority) -> NodeFiles:
    return authority.node()


@pytest.fixture(scope="module")
def running(files: NodeFiles) -> Iterator[Patient]:
    with Patient(storages=1, ca=files.ca, cert=files.cert, key=files.key) as patient:
        yield patient


@pytest.fixture(scope="module")
def running_plain() -> Iterator[Patient]:
    with Patient(storages=1) as patient:
        yield patient


@pytest.fixture
def patient(running: Patient) -> Iterator[Patient]:
    """Return a cluster that uses TLS on every link, also that of its client."""
    running.check()
    running.mark()
    yield running
    running.check()


def context(files: NodeFiles) -> ssl.SSLContext:
    return tls_context(files.ca, files.cert, files.key, server=False)


@pytest.mark.parametrize("role", ROLES)
def test_a_peer_with_a_certificate_is_served(patient: Patient, role: str, files: NodeFiles) -> None:
    with RawPeer(patient.address(role), context(files)) as peer:
        peer.greet()
        assert peer.ask(Ping()) == Pong()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("data", [HANDSHAKE, b"GET / HTTP/1.1\r\n\r\n"], ids=["neo", "http"])
def test_plaintext_to_tls(patient: Patient, role: str, data: bytes) -> None:
    with RawPeer(patient.address(role)) as peer:
        peer.send(data)
        assert peer.read_until_closed()[:1] == b"\x15"  # an alert, explained in the logs
    patient.logged(role, "this node uses TLS and the peer does not: give all nodes ca, cert and key")


@pytest.mark.parametrize("role", ROLES)
def test_tls_to_plaintext(running_plain: Patient, role: str, files: NodeFiles) -> None:
    running_plain.check()
    running_plain.mark()
    with pytest.raises(ssl.SSLError):
        RawPeer(running_plain.address(role), context(files))
    running_plain.logged(role, "the peer uses TLS and this node does not: give all nodes ca, cert")
    running_plain.check()


def refused(patient: Patient, role: str, ssl_context: ssl.SSLContext) -> str:
    """Return the alert that a peer gets; with TLS 1.3 it comes after the handshake."""
    with pytest.raises(ssl.SSLError) as caught:
        with RawPeer(patient.address(role), ssl_context) as peer:
            peer.receive()
    return str(caught.value)


@pytest.mark.parametrize("role", ROLES)
def test_no_certificate(patient: Patient, role: str, files: NodeFiles) -> None:
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.check_hostname = False
    anonymous.load_verify_locations(files.ca)
    assert "CERTIFICATE_REQUIRED" in refused(patient, role, anonymous)
    patient.logged(role, "TLS failed: peer did not return a certificate; each node needs")


@pytest.mark.parametrize("role", ROLES)
def test_another_authority(patient: Patient, role: str, folder: Path, files: NodeFiles) -> None:
    foreign = Authority(folder, f"foreign-{role}").node()
    ssl_context = context(NodeFiles(files.ca, foreign.cert, foreign.key))
    assert "UNKNOWN_CA" in refused(patient, role, ssl_context)
    patient.logged(role, "TLS failed: unable to get local issuer certificate; each node needs")


@pytest.mark.parametrize("role", ROLES)
def test_an_expired_certificate(patient: Patient, role: str, authority: Authority) -> None:
    expired = authority.node(f"old-{role}", expired=True)
    assert "CERTIFICATE_EXPIRED" in refused(patient, role, context(expired))
    patient.logged(role, "TLS failed: certificate has expired; each node needs a certificate that")


def test_a_peer_that_does_not_trust_the_cluster(patient: Patient, folder: Path) -> None:
    foreign = Authority(folder, "suspicious").node()
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        RawPeer(patient.address("master"), context(foreign))
    patient.logged("master", "unknown ca")
