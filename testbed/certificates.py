"""Certificates of one testbed: its own authority, one identity per component."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=30)


class Authority:
    """Signs what the components of one testbed show each other; keys lie in its folder."""

    def __init__(self, folder: Path) -> None:
        """Load the authority in folder, or create it there."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / "ca.crt").exists():
            self._create()
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            message = f"{folder / 'ca.key'} is not an elliptic-curve key: remove the testbed with `down`"
            raise TypeError(message)
        self._key = key
        self._certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())

    def client(self, name: str, user: str, group: str | None = None) -> tuple[Path, Path]:
        """Certificate and key files by which a client is `user` in `group` (RBAC's names)."""
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        return self._issue(name, _subject(user, group), usage, [])

    def server(self, name: str, hosts: Sequence[str]) -> tuple[Path, Path]:
        """Certificate and key files of a server that answers under these addresses and names."""
        return self._issue(name, _subject(name), ExtendedKeyUsageOID.SERVER_AUTH, list(map(_host, hosts)))

    def signing_key(self, name: str) -> Path:
        """Key file without a certificate, for service-account tokens."""
        path = self.folder / f"{name}.key"
        if not path.exists():
            _write_key(path, _new_key())
        return path

    def _create(self) -> None:
        key, subject = _new_key(), _subject("outrider-testbed")
        builder = _builder(subject, subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())
        _write_key(self.folder / "ca.key", key)
        (self.folder / "ca.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _issue(
        self, name: str, subject: x509.Name, usage: x509.ObjectIdentifier, hosts: list[x509.GeneralName]
    ) -> tuple[Path, Path]:
        certificate_file, key_file = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        key = _new_key()
        builder = _builder(subject, self._certificate.subject, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        _write_key(key_file, key)
        certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return certificate_file, key_file


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + _VALID)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _subject(user: str, group: str | None = None) -> x509.Name:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group:
        names.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(names)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    path.touch(0o600)
    path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
