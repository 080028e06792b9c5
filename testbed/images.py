"""The images of a testbed, as archives in the cache that nodes import.

The Outrider image has the install steps of the repository's Containerfile (tools/image-install); only the base
differs, which here comes from Debian packages. Its small top layer alone changes with the code.
"""

import hashlib
import inspect
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from testbed import debian, locks, uv, versions
from testbed.build import program
from testbed.oci import Image, Layer, layer, write_archive
from testbed.paths import cache_dir
from testbed.say import Say, step

OUTRIDER = "ghcr.io/outrider/outrider:0.1.0"
KUBE_SCHEDULER = f"registry.k8s.io/kube-scheduler:v{versions.KUBERNETES}"
PYTORCH = "outrider.dev/pytorch:2"
TOOLS = "outrider.dev/tools:1"

_PATH = "PATH=/usr/local/bin:/usr/bin:/bin"
_UNBUFFERED = "PYTHONUNBUFFERED=1"
USER = "65532:65532"
"""User of the images that need no right."""

PACKAGES = ("outrider", "scheduler_plugin", "webhook", "node_agent", "remediation", "inpod")
"""What the wheel is made of."""

_TORCHRUN = """#!/usr/bin/python3
from torch.distributed.run import main

main()
"""


def archives(say: Say) -> list[Path]:
    """Archives with all images, made where the cache lacks them: first those that rarely change, then Outrider's.

    Raises:
        MissingPrerequisiteError: apt, uv or a built kube-scheduler is missing; the message says what to do.
        TestbedError: a step failed; the message ends with the words of the program that failed.
    """
    return [_archive("basic", say, _basic), _archive("outrider", say, _outrider)]


def _archive(name: str, say: Say, make: Callable[[], list[Image]]) -> Path:
    with locks.waiting(cache_dir() / "images.lock"), step(say, f"images: {name}", "ready"):
        images = make()
        out = cache_dir() / "images" / f"{name}-{_hash(repr(images).encode())}.tar"
        if not out.exists():
            for old in out.parent.glob(f"{name}-*.tar"):
                old.unlink()
            write_archive(out, images)
    return out


def _basic() -> list[Image]:
    python = _python()
    shell = layer("shell", _source(debian), debian.fill_shell)
    training = layer("pytorch", _source(sys.modules[__name__]), fill_pytorch)
    scheduler = program("kube-scheduler")
    return [
        Image(KUBE_SCHEDULER, (_scheduler(scheduler),), user=USER, env=(_PATH,)),
        Image(PYTORCH, (python, shell, training), user="1000:1000", env=(_PATH, _UNBUFFERED, "HOME=/tmp")),
        Image(TOOLS, (python, shell), user="1000:1000", env=(_PATH,)),
    ]


def _outrider() -> list[Image]:
    env = (_PATH, "PYTHONPATH=/opt/outrider/app:/opt/outrider/lib", _UNBUFFERED)
    layers = (_python(), _libraries(), _application())
    return [Image(OUTRIDER, layers, entrypoint=("python3", "-m"), user=USER, env=env)]


def _python() -> Layer:
    return layer("python", _source(debian), debian.fill_python)


def _libraries() -> Layer:
    key = _hash(*((uv.REPOSITORY / name).read_bytes() for name in ("uv.lock", "tools/image-install")))
    return layer("libraries", key, lambda root: _install("deps", root / "opt" / "outrider" / "lib"))


def _application() -> Layer:
    files = [uv.REPOSITORY / name for name in ("pyproject.toml", "README.md", "tools/image-install")]
    for package in PACKAGES:
        files += sorted(f for f in (uv.REPOSITORY / package).rglob("*") if f.is_file() and f.suffix != ".pyc")
    key = _hash(*(str(each).encode() + each.read_bytes() for each in files))
    return layer("application", key, lambda root: _install("app", root / "opt" / "outrider" / "app"))


def _install(what: str, target: Path) -> None:
    target.mkdir(parents=True)
    script = uv.REPOSITORY / "tools" / "image-install"
    uv.run(f"installing Outrider ({what}) into its image", [script, what, target], PYTHON=sys.executable)


def _scheduler(built: Path) -> Layer:
    def fill(root: Path) -> None:
        target = root / "usr" / "local" / "bin"
        target.mkdir(parents=True)
        shutil.copy(built, target)

    return layer("kube-scheduler", str(built), fill)


def fill_pytorch(root: Path) -> None:
    """A path file that leads to the mounted PyTorch, and torchrun."""
    site = root / "usr" / "local" / "lib" / "python3.11" / "dist-packages"
    site.mkdir(parents=True)
    (site / "pytorch.pth").write_text("/opt/pytorch\n")
    torchrun = root / "usr" / "local" / "bin" / "torchrun"
    torchrun.parent.mkdir(parents=True)
    torchrun.write_text(_TORCHRUN)
    torchrun.chmod(0o755)
    (root / "opt" / "pytorch").mkdir(parents=True)


def _source(module: ModuleType) -> str:
    return inspect.getsource(module)


def _hash(*contents: bytes) -> str:
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:12]
