"""TLS of the extender, for a kube-scheduler that is not in the same pod."""

import ssl

import msgspec


class TLS(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """PEM files. They are read once: a changed certificate takes a restart."""

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
