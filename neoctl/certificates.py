"""An authority of one cluster, and certificates of it, as `neoctl init` writes them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: As in docs/security.md.
AUTHORITY_DAYS = 3650
NODE_DAYS = 825
#: Clocks of machines may differ by this.
EARLIER = timedelta(hours=1)


class Authority:
    """A new authority. ``name``: of the cluster, for which alone it signs."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"NEO cluster {name}")
        self._certificate = self._sign(self._name, self._key.public_key(), AUTHORITY_DAYS, None)

    def write(self, certificate: Path, key: Path | None = None) -> None:
        """Write the certificate, which everybody needs, and the key, which no node may have."""
        certificate.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        if key is not None:
            _write_key(key, self._key)

    def write_member(self, name: str, certificate: Path, key: Path) -> None:
        """Write a certificate of a node, application or operator, and its key."""
        own = ec.generate_private_key(ec.SECP256R1())
        signed = self._sign(_name(name), own.public_key(), NODE_DAYS, self._key.public_key())
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        _write_key(key, own)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        days: int,
        authority: ec.EllipticCurvePublicKey | None,
    ) -> x509.Certificate:
        """``authority``: None for the certificate of the authority itself."""
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - EARLIER)
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(authority is None, None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority or key), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a file that only its owner may read, from the first byte on."""
    data = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
