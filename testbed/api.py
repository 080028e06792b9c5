"""A small client of the API server for the testbed's own needs: wait, create nodes, read nodes."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError


class Api:
    """Speaks JSON over one connection as the testbed's administrator; not for several threads."""

    def __init__(self, host: str, port: int, certificates: Path) -> None:
        """Use the administrator's certificate in the testbed's certificate folder."""
        context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")
        self._connection = http.client.HTTPSConnection(host, port, timeout=10, context=context)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> tuple[int, Any]:
        """Status and decoded answer of one request; text where the answer is not JSON.

        Raises:
            OSError: the server does not answer.
        """
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, {"Content-Type": kind})
            response = self._connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise OSError(str(error)) from error
        is_json = "json" in (response.headers.get("Content-Type") or "")
        return response.status, json.loads(text) if is_json else text

    def get(self, path: str) -> Any:
        """Decoded object at path.

        Raises:
            TestbedError: the server refused.
        """
        status, answer = self.call("GET", path)
        return _checked("GET", path, status, answer)

    def ensure(self, collection: str, body: dict[str, Any]) -> None:
        """Create an object unless it exists.

        Raises:
            TestbedError: the server refused.
        """
        status, answer = self.call("POST", collection, body)
        if status != http.client.CONFLICT:
            _checked("POST", collection, status, answer)

    def patch(self, path: str, changes: dict[str, Any]) -> None:
        """Apply a JSON merge patch (RFC 7396).

        Raises:
            TestbedError: the server refused.
        """
        status, answer = self.call("PATCH", path, changes, "application/merge-patch+json")
        _checked("PATCH", path, status, answer)

    def is_ready(self) -> bool:
        """Whether the API server says it is ready."""
        try:
            return self.call("GET", "/readyz")[0] == http.client.OK
        except OSError:
            return False


def _checked(method: str, path: str, status: int, answer: Any) -> Any:
    if status < http.client.MULTIPLE_CHOICES:
        return answer
    words = answer.get("message", answer) if isinstance(answer, dict) else answer
    message = f"the API server answered {method} {path} with {status}: {words}"
    raise TestbedError(message)
