"""The TLS side of the server: takes each new certificate into the running server, without a restart."""

import logging
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from webhook import metrics
from webhook.certificates import Material, expiry, read
from webhook.objects import Secret

_LOG: Final = logging.getLogger(__name__)


class LiveCertificate:
    """An SSL context whose certificate can change: handshakes from then on use the new one, connections go on."""

    def __init__(self, on_first: Callable[[], None]) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._on_first = on_first
        self._expiry: datetime | None = None

    def on_secret(self, _old: Secret | None, new: Secret | None) -> None:
        """Take the certificate of the Secret; what can't be used leaves the one before in place."""
        material = read(new)
        if material is None:
            _LOG.warning("no usable certificate in the Secret, the one before stays")
            return
        self._load(material)
        first, self._expiry = self._expiry is None, expiry(material)
        metrics.CERTIFICATE_EXPIRY.set(self._expiry.timestamp())
        _LOG.info("serving certificate loaded", extra={"expires": self._expiry.isoformat()})
        if first:
            self._on_first()

    def problem(self, now: datetime | None = None) -> str | None:
        """Return why TLS can't work now, None where it can."""
        if self._expiry is None:
            return "no serving certificate yet"
        return "the serving certificate has expired" if (now or datetime.now(UTC)) >= self._expiry else None

    def _load(self, material: Material) -> None:
        # ssl reads certificates from files only; this one exists in memory alone.
        descriptor = os.memfd_create("outrider-webhook", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(material.certificate + material.key)
            file.flush()
            self.context.load_cert_chain(f"/proc/self/fd/{descriptor}")
