"""The sandbox image of every pod: one static program, packed as an OCI archive without a registry."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

from testbed import locks
from testbed.errors import MissingPrerequisiteError, TestbedError
from testbed.node_config import SANDBOX_IMAGE
from testbed.paths import cache_dir

_SOURCE = Path(__file__).parent / "pause" / "pause.c"
_FLAGS = ("-static", "-Os", "-s", "-Wall", "-Werror")
_OCI = "application/vnd.oci.image"


def archive() -> Path:
    """Path of the archive in the cache, made if the program or its flags have none there yet.

    Raises:
        MissingPrerequisiteError: there is no gcc.
        TestbedError: the compiler refused; the message ends with its words.
    """
    digest = hashlib.sha256(_SOURCE.read_bytes() + repr((_FLAGS, SANDBOX_IMAGE)).encode()).hexdigest()
    path = cache_dir() / "bin" / f"pause-{digest[:12]}.tar"
    with locks.waiting(cache_dir() / "pause.lock"):
        if not path.exists():
            partial = path.with_suffix(".partial")
            partial.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(_pack(_compile(partial.with_suffix(".bin"))))
            partial.rename(path)
    return path


def _compile(output: Path) -> bytes:
    if not shutil.which("gcc"):
        message = "gcc is missing: install it with `apt-get install gcc libc6-dev`"
        raise MissingPrerequisiteError(message)
    command = ["gcc", *_FLAGS, "-o", str(output), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"building the sandbox program failed:\n{done.stderr.strip()[-1000:]}"
        raise TestbedError(message)
    content = output.read_bytes()
    output.unlink()
    return content


def _pack(program: bytes) -> bytes:
    """OCI image layout (opencontainers/image-spec, image-layout.md) as a tar."""
    layer = _tar({"pause": program})
    files: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": _blob(files, json.dumps(config).encode(), "config.v1+json"),
        "layers": [_blob(files, layer, "layer.v1.tar")],
    }
    entry = _blob(files, json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": SANDBOX_IMAGE}
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    return _tar(files)


def _blob(files: dict[str, bytes], content: bytes, kind: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    files[f"blobs/sha256/{digest}"] = content
    return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
