"""A certificate authority for tests, and certificates of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


class Files(NamedTuple):
    """Paths for the options of the same names."""

    ca: str
    cert: str
    key: str


class Authority:
    def __init__(self, name: str) -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign(self._name, self._key.public_key(), ca=True)

    def _sign(self, name: x509.Name, key: ec.EllipticCurvePublicKey, ca: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def issue(self, folder: Path) -> Files:
        """A certificate with its key, beside that of the authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
        certificate = self._sign(name, key.public_key(), ca=False)
        contents = {
            "ca.pem": self._certificate.public_bytes(Encoding.PEM),
            "cert.pem": certificate.public_bytes(Encoding.PEM),
            "key.pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        }
        for file, content in contents.items():
            (folder / file).write_bytes(content)
        return Files(*(str(folder / file) for file in contents))
