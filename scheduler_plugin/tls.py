"""TLS of the extender, for a kube-scheduler that is not in the same pod."""

import asyncio
import logging
import ssl
from typing import Final

import msgspec

_LOG: Final = logging.getLogger(__name__)
_AGAIN_SECONDS: Final = 60.0  # mounted Secrets change without a reliable file event


class TLS(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """PEM files. A renewed certificate is served within a minute; another authority of clients takes a restart."""

    cert_file: str
    """Serving certificate and its chain, for the host in the extender's urlPrefix."""

    key_file: str

    client_ca_file: str | None = None
    """Clients must show a certificate of this authority: kube-scheduler's extender tlsConfig certFile and keyFile."""

    def context(self) -> ssl.SSLContext:
        """Return what the server needs. Raises OSError, of which ssl.SSLError is one, for files of no use."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.cert_file, self.key_file)
        if self.client_ca_file is not None:
            context.load_verify_locations(self.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def renew(self, context: ssl.SSLContext) -> None:
        """Read the certificate again and again, for connections to come; files of no use leave the last good one."""
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except OSError as error:
                _LOG.warning("the certificate stays as it was", extra={"file": self.cert_file, "problem": str(error)})
