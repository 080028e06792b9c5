"""Image archives are valid OCI layouts, the same for the same content, and made by the steps of the Containerfile."""

import hashlib
import json
import os
import re
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from testbed import images, oci, pytorch, uv
from testbed.errors import TestbedError
from testbed.oci import Image, Layer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "outrider"


def layer_with(name: str, content: str) -> Layer:
    def fill(root: Path) -> None:
        (root / "etc").mkdir()
        (root / "etc" / name).write_text(content)
        (root / "link").symlink_to("etc")

    return oci.layer(name, content, fill)


def read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {m.name: file.read() for m in tar.getmembers() if (file := tar.extractfile(m))}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert descriptor["size"] == len(content)
    return content


def test_an_archive_is_an_oci_layout_whose_every_digest_and_size_is_right(tmp_path: Path) -> None:
    base, top = layer_with("base", "1"), layer_with("top", "2")
    out = tmp_path / "images.tar"
    one = Image("example.dev/one:1", (base, top), ("run",), "65532:65532", ("A=b",))
    oci.write_archive(out, [one, Image("example.dev/two:1", (base,))])
    files = read(out)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    entries = json.loads(files["index.json"])["manifests"]
    names = [entry["annotations"]["io.containerd.image.name"] for entry in entries]
    assert names == ["example.dev/one:1", "example.dev/two:1"]
    manifest = json.loads(blob(files, entries[0]))
    config = json.loads(blob(files, manifest["config"]))
    layers = [blob(files, each) for each in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]
    assert config["config"] == {
        "Entrypoint": ["run"],
        "User": "65532:65532",
        "Env": ["A=b"],
        "WorkingDir": "/",
    }
    assert config["os"] == "linux"
    assert len([name for name in files if name.startswith("blobs/")]) == 2 + 2 + 2  # layers, configs, manifests


def test_a_layer_is_made_once_a_key_and_is_the_same_whenever_it_is_made(cache: Path) -> None:
    first = layer_with("a", "1")
    os.utime(first.file, (1, 1))
    assert layer_with("a", "1") == first
    assert first.file.stat().st_mtime == 1
    assert layer_with("a", "2").digest != first.digest
    assert not first.file.exists()
    for each in (cache / "images" / "layers").iterdir():
        each.unlink()
    assert layer_with("a", "1").digest == first.digest


def test_a_layer_keeps_modes_and_links_and_belongs_to_root(tmp_path: Path) -> None:
    def fill(root: Path) -> None:
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        (root / "lib").symlink_to("usr/lib")
        (root / "run").write_text("#!")
        (root / "run").chmod(0o755)

    made = oci.layer("modes", "1", fill)
    with tarfile.open(made.file) as tar:
        entries = {m.name: m for m in tar.getmembers()}
    assert entries["tmp"].mode == 0o1777
    assert entries["run"].mode == 0o755
    assert entries["lib"].linkname == "usr/lib"
    assert {(m.uid, m.gid, m.mtime) for m in entries.values()} == {(0, 0, 0)}
    assert tmp_path.exists()


def test_a_layer_that_fails_leaves_nothing_behind(cache: Path) -> None:
    def fail(_root: Path) -> None:
        raise TestbedError("no network")

    with pytest.raises(TestbedError, match="no network"):
        oci.layer("bad", "1", fail)
    assert [f.suffix for f in (cache / "images" / "layers").iterdir()] == [".lock"]


def test_the_containerfile_has_the_same_steps_paths_and_packages_as_the_testbeds_image() -> None:
    text = (uv.REPOSITORY / "Containerfile").read_text()
    assert re.findall(r"RUN tools/image-install (\w+) (\S+)", text) == [
        ("deps", "/opt/outrider/lib"),
        ("app", "/opt/outrider/app"),
    ]
    project = tomllib.loads((uv.REPOSITORY / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE) == packages == list(images.PACKAGES)
    assert "ENV PYTHONPATH=/opt/outrider/app:/opt/outrider/lib PYTHONUNBUFFERED=1" in text
    assert images.OUTRIDER.endswith(f":{project['project']['version']}")
    assert f"USER {images.USER}" in text


def test_pytorch_and_the_training_image_are_for_the_same_python(tmp_path: Path) -> None:
    assert pytorch.folder().name.endswith("cp311")
    images.fill_pytorch(tmp_path)
    assert (tmp_path / "usr/local/lib/python3.11/dist-packages/pytorch.pth").read_text() == "/opt/pytorch\n"
    assert os.access(tmp_path / "usr/local/bin/torchrun", os.X_OK)
