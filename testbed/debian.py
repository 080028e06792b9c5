"""Root filesystems from Debian packages: the files alone, no package manager, shell or scripts."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from testbed.errors import MissingPrerequisiteError, TestbedError

PYTHON = (
    *("base-files", "netbase", "tzdata", "media-types", "ca-certificates"),
    *("libc6", "libcrypt1", "libgcc-s1", "libstdc++6", "zlib1g", "libbz2-1.0", "liblzma5"),
    *("libexpat1", "libffi8", "libssl3", "libsqlite3-0", "libuuid1"),
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
)
"""Python 3.11 and what its extension modules and PyTorch link to."""

SHELL = ("busybox-static",)

_MERGED = ("bin", "sbin", "lib", "lib64")
_UNNEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/bug")
_USERS = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n"
_GROUPS = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"


def fill_python(root: Path) -> None:
    """Fill a folder with a root filesystem that runs Python 3.11.

    Raises:
        MissingPrerequisiteError: this machine has no apt.
        TestbedError: the packages could not be fetched or unpacked.
    """
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    unpack(root, PYTHON)
    for name in _UNNEEDED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("python3", "python"):
        (root / "usr" / "bin" / name).symlink_to("python3.11")
    _write_authorities(root)
    (root / "etc" / "passwd").write_text(_USERS)
    (root / "etc" / "group").write_text(_GROUPS)
    for name, mode in (("tmp", 0o1777), ("root", 0o700), ("proc", 0o755), ("sys", 0o755), ("dev", 0o755)):
        (root / name).mkdir(exist_ok=True)
        (root / name).chmod(mode)
    precompile(root / "usr" / "lib" / "python3.11")


def fill_shell(root: Path) -> None:
    """Fill a folder with busybox and its usual commands, to lie above `fill_python`."""
    unpack(root, SHELL)
    busybox = root / "bin" / "busybox"
    target = root / "usr" / "bin"
    target.mkdir(parents=True)
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    busybox.rename(target / "busybox")
    for name in listed:
        if name != "busybox":
            (target / name).symlink_to("busybox")
    for left in ("bin", "usr/share"):
        shutil.rmtree(root / left, ignore_errors=True)


def unpack(root: Path, packages: Iterable[str]) -> None:
    """Fetch packages with this machine's apt sources and unpack their files into a folder.

    Raises:
        MissingPrerequisiteError: this machine has no apt.
        TestbedError: apt or dpkg failed; the message ends with its words.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        message = "images are made of Debian packages: this machine needs apt-get and dpkg-deb (Debian 12)"
        raise MissingPrerequisiteError(message)
    folder = root.parent / "packages"
    folder.mkdir()
    _run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *packages], folder)
    for package in sorted(folder.glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as files:
            _run(["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(root)], folder, files.stdout)
    shutil.rmtree(folder)


def precompile(folder: Path) -> None:
    """Compile Python files where this Python is 3.11 too; checked by no time, since layers carry none."""
    if sys.version_info[:2] == (3, 11):
        options = ["-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
        subprocess.run([sys.executable, "-m", "compileall", *options, folder], capture_output=True, check=False)


def _write_authorities(root: Path) -> None:
    """One bundle of all certificate authorities, which the package's script would have made."""
    authorities = sorted((root / "usr" / "share" / "ca-certificates").rglob("*.crt"))
    bundle = root / "etc" / "ssl" / "certs" / "ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(f"{each.read_text().strip()}\n" for each in authorities))


def _run(command: list[str], folder: Path, stdin: IO[bytes] | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, stdin=stdin, env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        message = f"`{' '.join(command)}` failed:\n{done.stderr.strip()[-1000:]}"
        raise TestbedError(message)
