"""A private authority and the certificates of a ring, for a first try and for rings on one machine.

Where certificates are made for many machines (cert-manager, SPIRE, a company's own authority), theirs are as good: what
counts are the names in them (signalbox/links/tls/roles.py).
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from signalbox.errors import StartupError
from signalbox.links.tls.roles import DOMAIN, Role

CA_DAYS, LEAF_DAYS = 3650, 365
EARLIER = timedelta(minutes=5)
"""Clocks of other machines may be behind ours."""
CA_CERT, CA_KEY = "ca.crt", "ca.key"


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        """As files hold it."""
        return self.cert.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """As files hold it, unencrypted."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def make_authority(now: datetime) -> Issued:
    """A self-signed certificate that may sign leaves, and no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{DOMAIN} private authority")])
    builder = _begun(name, name, key, now, CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = {"key_cert_sign": True, "crl_sign": True, "digital_signature": True}
    builder = builder.add_extension(_usage(**usage), critical=True)
    return Issued(builder.sign(key, hashes.SHA256()), key)


def make_leaf(
    authority: Issued,
    role: Role,
    now: datetime,
    *,
    days: float = LEAF_DAYS,
    hosts: Sequence[str] = (),
    instance: str = "",
) -> Issued:
    """A certificate of a `role`, for both ends of a link. `hosts`: names and addresses under which clients know its
    server, beside the name of the role. `instance`: the only process that it is for, a worker by its id."""
    key = ec.generate_private_key(ec.SECP256R1())
    uri = f"spiffe://{DOMAIN}/{role.value}" + (f"/{instance}" if instance else "")
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
    names += [x509.DNSName(role.dns_name), *(_host(host) for host in hosts)]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, role.dns_name)])
    builder = _begun(subject, authority.cert.subject, key, now, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(key_id, critical=False)
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Writes a file that is not there yet, of that mode from the first byte. Raises StartupError when it is there."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise StartupError(f"{path}: {error.strerror}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def write_issued(folder: Path, name: str, issued: Issued) -> None:
    """`NAME.crt` for everybody, `NAME.key` for the owner only. Raises StartupError when one is there."""
    write_new(folder / f"{name}.key", issued.key_pem, 0o600)
    write_new(folder / f"{name}.crt", issued.cert_pem, 0o644)


def read_authority(folder: Path) -> Issued:
    """The authority whose files are in `folder`. Raises StartupError."""
    try:
        cert = x509.load_pem_x509_certificate((folder / CA_CERT).read_bytes())
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except OSError as error:
        raise StartupError(f"{folder / CA_CERT} or {folder / CA_KEY}: {error.strerror}") from None
    except ValueError as error:
        raise StartupError(f"{folder / CA_CERT} or {folder / CA_KEY} is damaged: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StartupError(f"{folder / CA_KEY} is no key that this command has made")
    return Issued(cert, key)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: float
) -> x509.CertificateBuilder:
    now = now.astimezone(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - EARLIER).not_valid_after(now + timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _usage(**used: bool) -> x509.KeyUsage:
    uses = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign"
    )
    none = dict.fromkeys([*uses.split(), "crl_sign", "encipher_only", "decipher_only"], False)
    return x509.KeyUsage(**(none | used))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
