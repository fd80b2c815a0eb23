"""Certificates for a server on loopback and one client, signed by an authority made on the spot."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    """PEM files: the authority, the server's key and chain in one, the client's apart."""

    authority: Path
    server_keystore: Path
    client_certificate: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Write the files into ``folder``; they are good for one day."""
    folder.mkdir(parents=True, exist_ok=True)
    files = Certificates(
        folder / "ca.pem", folder / "server.pem", folder / "client.pem", folder / "client.key"
    )
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _sign("authority", authority_key, authority_key, None)
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = _sign("server", server_key, authority_key, authority)
    client_key = ec.generate_private_key(ec.SECP256R1())
    client = _sign("client", client_key, authority_key, authority)
    files.authority.write_bytes(_pem(authority))
    files.server_keystore.write_bytes(_key_pem(server_key) + _pem(server) + _pem(authority))
    files.client_certificate.write_bytes(_pem(client))
    files.client_key.write_bytes(_key_pem(client_key))
    return files


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"quotaplane test {name}")])
    now = datetime.datetime.now(datetime.timezone.utc)
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([loopback, x509.DNSName("localhost")]), critical=False
        )
        .sign(signer, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, none)
