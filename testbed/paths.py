"""Where the testbed keeps things: the cache survives `down`, the state does not."""

import os
import re
from pathlib import Path

from testbed.errors import TestbedError

ROOT = os.geteuid() == 0
"""Real nodes need namespaces, mounts and cgroups, so root."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
_BULK = Path("/var/lib/outrider-testbed")


def cache_dir() -> Path:
    """Folder of built programs, images and PyTorch, shared by all testbeds of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "outrider"


def state_root() -> Path:
    """Folder that holds one state folder per testbed."""
    if ROOT:
        return Path("/run/outrider-testbed")
    base = os.environ.get("XDG_RUNTIME_DIR") or cache_dir()
    return Path(base) / "outrider-testbed"


def check_name(name: str) -> str:
    """Return name if it can name a testbed; it becomes part of folder, cgroup and host names.

    Raises:
        TestbedError: it has other characters than a-z, 0-9 and dashes, or is longer than 20.
    """
    if _NAME.fullmatch(name):
        return name
    message = f"--name {name!r}: use 1 to 20 of a-z, 0-9 and '-', beginning with a letter"
    raise TestbedError(message)


def state_dir(name: str) -> Path:
    """State folder of a testbed: kubeconfig, logs/, nodes/, shared/."""
    return state_root() / check_name(name)


def bulk_dir(name: str) -> Path:
    """Folder on a disk for what is too large for /run: etcd's data, images and containers of the nodes."""
    return (_BULK if ROOT else cache_dir() / "data") / check_name(name)
