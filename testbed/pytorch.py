"""PyTorch, installed once into the cache; nodes mount it read-only, so that no image carries its 5 GB."""

import platform
import shutil
from pathlib import Path

from testbed import debian, locks, uv
from testbed.paths import cache_dir
from testbed.say import Say, step

PYTHON = "3.11"
"""Python of the training image, which is Debian 12's."""

_REQUIREMENTS = ("torch==2.14.*", "numpy==2.*")


def folder() -> Path:
    """Where the installed copy is or will be, laid out as a site-packages folder."""
    return cache_dir() / "pytorch" / f"torch-2.14-cp{PYTHON.replace('.', '')}"


def ensure(say: Say) -> Path:
    """Install PyTorch from PyPI unless the cache has it; returns its folder.

    Raises:
        MissingPrerequisiteError: there is no uv.
        TestbedError: the installation failed.
    """
    target = folder()
    with locks.waiting(cache_dir() / "pytorch.lock"):
        if not target.exists():
            with step(say, "PyTorch from PyPI (5.3 GB on disk)", "installed"):
                _install(target)
    return target


def _install(target: Path) -> None:
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    platform_tag = f"{platform.machine()}-manylinux_2_28"
    where: list[str | Path] = ["--target", partial, "--python-version", PYTHON, "--python-platform", platform_tag]
    uv.run("installing PyTorch", [uv.find(), "pip", "install", *where, "--only-binary", ":all:", *_REQUIREMENTS])
    debian.precompile(partial)  # nodes mount it read-only, and importing uncompiled files takes twice as long
    partial.rename(target)
