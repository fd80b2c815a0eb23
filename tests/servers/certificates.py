"""Makes certificates for a server on loopback and one client, signed by a new authority."""

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
    """PEM files of the authority, the server and the client."""

    authority: Path
    server_keystore: Path
    """The server's key and chain in one file."""
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path
    client_name: str
    """The common name in the client's certificate."""


def make_certificates(folder: Path) -> Certificates:
    """Write the files into ``folder``; they are valid for one day."""
    folder.mkdir(parents=True, exist_ok=True)
    files = Certificates(
        authority=folder / "ca.pem",
        server_keystore=folder / "server.pem",
        server_certificate=folder / "server.crt",
        server_key=folder / "server.key",
        client_certificate=folder / "client.pem",
        client_key=folder / "client.key",
        client_name=_common_name("client"),
    )
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _sign("authority", authority_key, authority_key, None)
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = _sign("server", server_key, authority_key, authority)
    client_key = ec.generate_private_key(ec.SECP256R1())
    client = _sign("client", client_key, authority_key, authority)
    files.authority.write_bytes(_pem(authority))
    files.server_keystore.write_bytes(_key_pem(server_key) + _pem(server) + _pem(authority))
    files.server_certificate.write_bytes(_pem(server) + _pem(authority))
    files.server_key.write_bytes(_key_pem(server_key))
    files.client_certificate.write_bytes(_pem(client))
    files.client_key.write_bytes(_key_pem(client_key))
    return files


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _common_name(name))])
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


def _common_name(name: str) -> str:
    return f"quotaplane test {name}"


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, none)
