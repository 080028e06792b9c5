"""Write container images as OCI archives, without a registry or Docker (opencontainers/image-spec 1.1)."""

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from testbed import locks
from testbed.paths import cache_dir

_OCI = "application/vnd.oci.image"
_CHUNK_BYTES = 1 << 20


class Layer(msgspec.Struct, frozen=True):
    """One uncompressed layer in the cache."""

    file: Path
    digest: str
    size_bytes: int


class Image(msgspec.Struct, frozen=True):
    """An image: its full name, its layers from the bottom up, and how it runs."""

    name: str
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...] = ()
    user: str = ""
    env: tuple[str, ...] = ()
    working_dir: str = "/"


def layer(name: str, key: str, fill: Callable[[Path], None]) -> Layer:
    """A layer from the cache; made by `fill`, which gets an empty folder, if no layer has this name and key.

    A new layer replaces those of the same name and other keys.

    Raises:
        whatever `fill` raises; nothing is kept then.
    """
    file = cache_dir() / "images" / "layers" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.tar"
    file.parent.mkdir(parents=True, exist_ok=True)
    with locks.waiting(file.with_suffix(".lock")):
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=file.parent, prefix=f"{name}-") as folder:
                root = Path(folder) / "root"
                root.mkdir(mode=0o755)
                fill(root)
                partial = Path(folder) / "layer.tar"
                pack(root, partial)
                _remove_layers(name)
                partial.rename(file)
    return Layer(file, _digest(file), file.stat().st_size)


def _remove_layers(name: str) -> None:
    for suffix in ("tar", "digest"):
        for old in (cache_dir() / "images" / "layers").glob(f"{name}-{'[0-9a-f]' * 12}.{suffix}"):
            old.unlink()


def pack(root: Path, out: Path) -> None:
    """Write the content of a folder as a tar that is the same for the same content: sorted, no times, root-owned."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, str(path.relative_to(root)), recursive=False, filter=plain)


def write_archive(out: Path, images: Iterable[Image]) -> None:
    """Write an OCI image layout tar with several images; a layer that they share is in it once."""
    blobs: dict[str, bytes | Path] = {}
    manifests = []
    for image in images:
        blobs |= {each.digest: each.file for each in image.layers}
        manifests.append(_add_manifest(blobs, image))
    index = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": manifests}
    partial = out.with_name(f"{out.name}.partial")
    with tarfile.open(partial, "w") as tar:
        _add_bytes(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add_bytes(tar, "index.json", json.dumps(index).encode())
        for digest, content in blobs.items():
            place = f"blobs/{digest.replace(':', '/')}"
            if isinstance(content, bytes):
                _add_bytes(tar, place, content)
            else:
                tar.add(content, place)
    partial.rename(out)


def _add_manifest(blobs: dict[str, bytes | Path], image: Image) -> dict[str, object]:
    run = {"Entrypoint": image.entrypoint, "User": image.user, "Env": image.env, "WorkingDir": image.working_dir}
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {key: value for key, value in run.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [each.digest for each in image.layers]},
    }
    layers = [
        {"mediaType": f"{_OCI}.layer.v1.tar", "digest": each.digest, "size": each.size_bytes} for each in image.layers
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": _add_json(blobs, config, "config"),
        "layers": layers,
    }
    entry = _add_json(blobs, manifest, "manifest")
    return entry | {"annotations": {"io.containerd.image.name": image.name}}


def _add_json(blobs: dict[str, bytes | Path], content: object, kind: str) -> dict[str, object]:
    encoded = json.dumps(content, sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(encoded).hexdigest()}"
    blobs[digest] = encoded
    return {"mediaType": f"{_OCI}.{kind}.v1+json", "digest": digest, "size": len(encoded)}


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _digest(file: Path) -> str:
    """Digest of a layer, kept beside it."""
    kept = file.with_suffix(".digest")
    if not kept.exists():
        digest = hashlib.sha256()
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
        kept.write_text(f"sha256:{digest.hexdigest()}")
    return kept.read_text()
