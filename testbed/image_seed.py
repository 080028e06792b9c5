"""A containerd data folder with all images unpacked once; nodes begin with linked copies of it.

Links are safe: containerd never changes a blob or an unpacked layer, and overlayfs copies a file before a container
changes it. Only containerd's databases are changed in place, so each node gets its own.
"""

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from testbed import locks
from testbed.build import program
from testbed.errors import TestbedError
from testbed.node_images import LOADED, import_archive
from testbed.paths import cache_dir
from testbed.say import Say, step

_TOML = """\
version = 3
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
address = "{socket}"
"""


class Seed(msgspec.Struct, frozen=True):
    """Archives, and the folder with containerd's data after importing them."""

    folder: Path
    archives: tuple[Path, ...]


def make(archives: Sequence[Path], say: Say) -> Seed:
    """The seed of these archives, from the cache if they did not change.

    Raises:
        TestbedError: containerd did not start or refused an archive.
    """
    home = cache_dir() / "images"
    words = "\n".join([str(program("containerd")), *(a.name for a in archives)])
    target = home / f"seed-{hashlib.sha256(words.encode()).hexdigest()[:12]}"
    with locks.waiting(home / "seed.lock"):
        if not target.exists():
            with step(say, "images: unpacking", "ready"):
                _make(target, archives)
    return Seed(target, tuple(archives))


def plant(seed: Seed, disk: Path) -> None:
    """Give a new node's disk the seed's images; a disk that has images keeps its own."""
    if not (disk / "containerd").exists():
        disk.mkdir(parents=True, exist_ok=True)
        with locks.waiting(seed.folder.parent / "seed.lock"):
            for part in (LOADED, "containerd"):
                _copy(seed.folder / part, disk / part)


def _make(target: Path, archives: Sequence[Path]) -> None:
    """Import what the last seed lacks; seeds of other versions of the images are removed."""
    partial = target.with_name("partial-seed")
    shutil.rmtree(partial, ignore_errors=True)
    older = sorted(target.parent.glob("seed-*/"), key=lambda p: p.stat().st_mtime)
    if older:
        partial.mkdir()
        for part in (LOADED, "containerd"):
            _copy(older[-1] / part, partial / part)
    (partial / LOADED).mkdir(parents=True, exist_ok=True)
    with _containerd(partial / "containerd") as socket:
        for archive in archives:
            if not (partial / LOADED / archive.name).exists():
                import_archive(socket, archive, "the image cache")
                (partial / LOADED / archive.name).touch()
    partial.rename(target)
    for seed in older:
        shutil.rmtree(seed)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder by links, or really where source and target are on different file systems."""
    for how in ("-al", "-a"):
        done = subprocess.run(["cp", how, source, target], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            _own_databases(target)
            return
        shutil.rmtree(target, ignore_errors=True)
    message = f"copying images to {target} failed: {done.stderr.strip()[-300:]}"
    raise TestbedError(message)


def _own_databases(folder: Path) -> None:
    for database in folder.glob("*/*.db"):
        copy = database.with_suffix(".copy")
        shutil.copyfile(database, copy)
        copy.rename(database)


@contextlib.contextmanager
def _containerd(root: Path) -> Iterator[Path]:
    """A containerd that works on `root` for the length of a with block; gives its socket."""
    with tempfile.TemporaryDirectory(prefix="outrider-seed-") as folder:
        socket, config = Path(folder) / "containerd.sock", Path(folder) / "config.toml"
        config.write_text(_TOML.format(root=root, state=Path(folder) / "state", socket=socket))
        with (Path(folder) / "log").open("w") as log:
            running = subprocess.Popen([program("containerd"), "--config", config], stdout=log, stderr=log)
        try:
            yield socket
        finally:
            running.terminate()
            running.wait()
