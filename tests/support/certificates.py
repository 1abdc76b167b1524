"""Certificates for tests: an authority and nodes that it signs, as files in a folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


class NodeFiles(NamedTuple):
    """Paths for the settings ``ca``, ``cert`` and ``key``."""

    ca: str
    cert: str
    key: str


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


class Authority:
    """A certificate authority with its own files in ``folder``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = folder / f"{name}.pem"
        certificate = self._sign(
            name, self._key, authority=True, valid_until=datetime.now(UTC) + _DAY
        )
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def node(self, name: str = "node", expired: bool = False) -> NodeFiles:
        """Files of a node with a certificate that is valid for a day, or that ended an hour ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = datetime.now(UTC) + (timedelta(hours=-1) if expired else _DAY)
        certificate = self._sign(name, key, authority=False, valid_until=end)
        cert_path = self._folder / f"{self._name}-{name}.pem"
        key_path = self._folder / f"{self._name}-{name}.key"
        cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(key_path, key)
        return NodeFiles(str(self.ca), str(cert_path), str(key_path))

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, authority: bool, valid_until: datetime
    ) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(valid_until - 3 * _DAY)
            .not_valid_after(valid_until)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
