"""System programs that real nodes need, and the Debian packages that bring them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from testbed.errors import MissingPrerequisiteError
from testbed.paths import ROOT
from testbed.say import Say, step

CNI_PLUGINS = Path("/usr/lib/cni")
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def search_path() -> str:
    """PATH with the folders of system programs, which users' PATH may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), *_SBIN])


def _on_path(program: str) -> Callable[[], bool]:
    return lambda: shutil.which(program, path=search_path()) is not None


NEEDED: dict[str, Callable[[], bool]] = {
    "runc": _on_path("runc"),
    "containernetworking-plugins": (CNI_PLUGINS / "ptp").exists,
    "iproute2": _on_path("ip"),
    "nftables": _on_path("nft"),
    "conntrack": _on_path("conntrack"),
    "util-linux": _on_path("nsenter"),
    "mount": _on_path("mount"),
    "gcc": _on_path("gcc"),
    "libc6-dev": Path("/usr/include/stdio.h").exists,
}
"""Debian package by what shows that it is there."""


def missing() -> list[str]:
    """Packages of which the machine lacks what it needs."""
    return [package for package, is_there in NEEDED.items() if not is_there()]


def ensure(say: Say) -> None:
    """Install what is missing where that is possible: as root, with apt-get.

    Raises:
        MissingPrerequisiteError: it is not possible; the message names the command to run.
    """
    absent = missing()
    if not absent:
        return
    command = f"apt-get update && apt-get install -y --no-install-recommends {' '.join(absent)}"
    if not (ROOT and shutil.which("apt-get")):
        message = f"missing on this machine: {', '.join(absent)}. On Debian or Ubuntu: sudo sh -c '{command}'"
        raise MissingPrerequisiteError(message)
    with step(say, f"installing {', '.join(absent)}", "installed"):
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, check=False)
    if done.returncode or missing():
        message = f"`{command}` failed:\n{(done.stderr or done.stdout).strip()[-1500:]}"
        raise MissingPrerequisiteError(message)
