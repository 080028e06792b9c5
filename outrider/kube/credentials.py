"""Who we are to the API server: address, TLS, and the token of the moment.

A pod's service account is read here rather than by the ``kubernetes`` library: its import takes 20 MB, in every process
of every component, for two files and two environment variables. Kubeconfigs, with their many ways to log in, are left
to it (see transport.py).
"""

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from outrider.kube.errors import NoCredentials, Unreachable

HOST_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
_PORT_VARIABLE: Final = "KUBERNETES_SERVICE_PORT"
SERVICE_ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_SECONDS: Final = 60.0  # the kubelet replaces a token at 80 % of its life, which is 10 minutes at least


class Credentials(Protocol):
    """What a request needs to be let in."""

    root: str
    """URL of the API server without a slash at the end."""
    tls: ssl.SSLContext
    proxy: str | None
    server_name: str | None
    """Name that the certificate must have, where that is not the host of the URL."""

    async def authorization(self) -> str:
        """Return the value of the Authorization header, empty for none. Raises Unreachable where none can be had."""
        ...


class ServiceAccount:
    """Credentials of a pod, as the kubelet mounts them."""

    proxy: str | None = None
    server_name: str | None = None

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path = SERVICE_ACCOUNT_FOLDER,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the service account. Raises NoCredentials, naming the file or variable that is missing."""
        host, port = environment.get(HOST_VARIABLE, ""), environment.get(_PORT_VARIABLE, "")
        if not host or not port:
            raise NoCredentials(f"service account: {HOST_VARIABLE} and {_PORT_VARIABLE} must both be set")
        self.root = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._token_file = folder / "token"
        self._clock = clock
        try:
            self.tls = ssl.create_default_context(cafile=folder / "ca.crt")
            self._read_token()
        except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
            raise NoCredentials(f"service account in {folder}: {error}; does the pod mount its token?") from error

    def _read_token(self) -> None:
        token = self._token_file.read_text(encoding="ascii").strip()
        if not token:
            raise OSError(f"{self._token_file} is empty")
        self._authorization, self._read_at = f"Bearer {token}", self._clock()

    async def authorization(self) -> str:
        """See Credentials. The file is read again once a minute: the kubelet rotates the token."""
        if self._clock() - self._read_at >= _TOKEN_SECONDS:
            try:
                self._read_token()
            except (OSError, UnicodeDecodeError) as error:
                raise Unreachable(f"service account token: {error}") from error
        return self._authorization
