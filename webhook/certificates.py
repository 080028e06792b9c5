"""The webhook's own CA and serving certificate: what they are and which step they need next. Pure but for randomness.

Rotation never makes a request fail. Order: a new CA joins the bundle in front of the old one; the API server gets the
bundle; once every API server has had time to see it, the serving certificate is issued by the new CA; when no replica
can still serve the old one, the old CA leaves. Each step is recognised by looking at the material itself, so a leader
may die between any two.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from webhook.objects import Secret

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
CA: Final = "ca.crt"
CA_KEY: Final = "ca.key"
_RENEW_AT: Final = 2 / 3  # of a certificate's life (cert-manager's habit): a third is left to notice failures
_CA_NAME: Final = "outrider-webhook-ca"


class Step(StrEnum):
    """What to do next."""

    CREATE = "create"  # nothing usable there: new CA, new certificate
    ADD_CA = "add-ca"
    PUBLISH = "publish"  # bring the bundle into the webhook configuration
    ISSUE = "issue"
    DROP_CA = "drop-ca"


@dataclass(frozen=True)
class Lifetimes:
    """Periods. ``backdate`` allows for clocks that differ; ``settle`` is how long API servers may take to see a bundle,
    ``overlap`` how long a replica may serve the certificate before the last.
    """

    ca: timedelta = timedelta(days=730)
    serving: timedelta = timedelta(days=90)
    backdate: timedelta = timedelta(minutes=5)
    settle: timedelta = timedelta(minutes=1)
    overlap: timedelta = timedelta(hours=1)


@dataclass(frozen=True)
class Material:
    """Content of the Secret, PEM. ``cas`` are trusted, the newest (whose key is ``ca_key``) first."""

    cas: tuple[bytes, ...]
    ca_key: bytes
    certificate: bytes
    key: bytes

    @property
    def bundle(self) -> bytes:
        """The CAs as one PEM text."""
        return b"".join(self.cas)

    def data(self) -> dict[str, str]:
        """Return the Secret's data."""
        values = {CA: self.bundle, CA_KEY: self.ca_key, CERTIFICATE: self.certificate, KEY: self.key}
        return {name: base64.b64encode(value).decode() for name, value in values.items()}


def read(secret: Secret | None) -> Material | None:
    """Return the material in a Secret, None where it is absent, incomplete or does not belong together."""
    if secret is None:
        return None
    try:
        cas = tuple(_pem(ca) for ca in x509.load_pem_x509_certificates(secret.value(CA)))
        found = Material(cas, secret.value(CA_KEY), secret.value(CERTIFICATE), secret.value(KEY))
        fits = _fits(_certificate(cas[0]), _key(found.ca_key)) and _fits(_leaf(found), _key(found.key))
    except (ValueError, TypeError, IndexError):  # what cryptography raises for text that is no PEM, or no such key
        return None
    return found if fits else None


def next_step(
    material: Material | None, published: bool, names: Sequence[str], now: datetime, lifetimes: Lifetimes
) -> Step | None:
    """Return the step that is due. ``published``: the webhook configuration, if there is one, trusts the bundle."""
    if material is None:
        return Step.CREATE
    newest, serving = _certificate(material.cas[0]), _leaf(material)
    if _is_due(newest, now):
        return Step.ADD_CA
    if not published:
        return Step.PUBLISH
    by_newest = _is_signed_by(serving, newest)
    if not by_newest or _is_due(serving, now) or _names(serving) != set(names):
        settled = by_newest or _age(newest, now, lifetimes) >= lifetimes.settle
        return Step.ISSUE if settled or now >= serving.not_valid_after_utc else None
    is_overlap_over = _age(serving, now, lifetimes) >= lifetimes.overlap
    return Step.DROP_CA if len(material.cas) > 1 and is_overlap_over else None


def apply(step: Step, material: Material | None, names: Sequence[str], now: datetime, lifetimes: Lifetimes) -> Material:
    """Return the material after a step; PUBLISH leaves it as it is."""
    if material is None or step is Step.CREATE:
        ca, ca_key = _new_ca(now, lifetimes)
        return _issue(Material((ca,), ca_key, b"", b""), names, now, lifetimes)
    if step is Step.ADD_CA:
        ca, ca_key = _new_ca(now, lifetimes)
        return replace(material, cas=(ca, *material.cas), ca_key=ca_key)
    if step is Step.ISSUE:
        return _issue(material, names, now, lifetimes)
    if step is Step.DROP_CA:
        return replace(material, cas=material.cas[:1])
    return material


def expiry(material: Material) -> datetime:
    """Return when the serving certificate expires."""
    return _leaf(material).not_valid_after_utc


def now_utc() -> datetime:
    """Return the current time; the default clock of those who rotate."""
    return datetime.now(UTC)


def _new_ca(now: datetime, lifetimes: Lifetimes) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    # Two CAs of one name would be ambiguous to a verifier during the overlap.
    name = _name(f"{_CA_NAME}-{x509.random_serial_number():x}"[:64])
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key, now, lifetimes.backdate, lifetimes.ca)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pem(builder.sign(key, hashes.SHA256())), _key_pem(key)


def _issue(material: Material, names: Sequence[str], now: datetime, lifetimes: Lifetimes) -> Material:
    ca, ca_key = _certificate(material.cas[0]), _key(material.ca_key)
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = (
        _builder(_name(names[0][:64]), ca.subject, key, now, lifetimes.backdate, lifetimes.serving)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_id, critical=False)
    )
    return replace(material, certificate=_pem(builder.sign(ca_key, hashes.SHA256())), key=_key_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    backdate: timedelta,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - backdate)
        .not_valid_after(now + life)
    )


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * _RENEW_AT


def _age(certificate: x509.Certificate, now: datetime, lifetimes: Lifetimes) -> timedelta:
    return now - certificate.not_valid_before_utc - lifetimes.backdate


def _is_signed_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: x509.Certificate) -> set[str]:
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return set(extension.value.get_values_for_type(x509.DNSName))


def _fits(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    return certificate.public_key() == key.public_key()


def _leaf(material: Material) -> x509.Certificate:
    return _certificate(material.certificate)


def _certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not an elliptic-curve key")
    return key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
