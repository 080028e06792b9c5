"""Write kubeconfig files: who speaks to the API server, and as whom."""

import base64
import json
from pathlib import Path

from testbed.certificates import Authority


def write(path: Path, url: str, authority: Authority, user: str, group: str | None = None) -> Path:
    """Write a kubeconfig, as JSON (which is YAML), by which its reader is `user` in `group`."""
    certificate, key = authority.client(user.replace(":", "-"), user, group)
    identity = {"client-certificate-data": _data(certificate), "client-key-data": _data(key)}
    return _write(path, url, authority, user, identity)


def write_token(path: Path, url: str, authority: Authority, user: str, token: str) -> Path:
    """Write a kubeconfig by which its reader is the service account whose token it holds."""
    return _write(path, url, authority, user, {"token": token})


def _write(path: Path, url: str, authority: Authority, user: str, identity: dict[str, str]) -> Path:
    cluster = {"server": url, "certificate-authority-data": _data(authority.folder / "ca.crt")}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
        "current-context": "testbed",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text(json.dumps(content, indent=1))
    return path


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
