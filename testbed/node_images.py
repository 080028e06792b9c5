"""Bring image archives into the nodes' containerd, side by side."""

import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testbed.build import program
from testbed.errors import TestbedError
from testbed.node_config import Node

LOADED = "loaded"
"""Folder that names the archives which a containerd data folder holds."""

_SOCKET_S = 30.0
_POLL_S = 0.05


def load(nodes: Sequence[Node], archives: Sequence[Path]) -> None:
    """Import archives into nodes that are on, skipping those that a node has on its disk already.

    Raises:
        TestbedError: a node's containerd did not start within 30 s, or refused an archive.
    """
    with ThreadPoolExecutor(max_workers=len(nodes) or 1) as pool:
        for done in [pool.submit(_load_into, node, archives) for node in nodes]:
            done.result()


def _load_into(node: Node, archives: Sequence[Path]) -> None:
    loaded = node.disk / LOADED
    for archive in archives:
        if not (loaded / archive.name).exists():
            import_image(node, archive)
            (loaded / archive.name).touch()


def import_image(node: Node, archive: Path) -> None:
    """Import one OCI archive into a node that is on.

    Raises:
        TestbedError: its containerd did not start within 30 s, or refused the archive.
    """
    import_archive(node.volatile / "containerd" / "containerd.sock", archive, node.name)


def import_archive(socket: Path, archive: Path, where: str) -> None:
    """Import one OCI archive into the containerd behind a socket, waiting until it is there.

    Raises:
        TestbedError: containerd did not start within 30 s, or refused the archive.
    """
    deadline = time.monotonic() + _SOCKET_S
    while not socket.exists() and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    command: list[str | Path] = [program("ctr"), "--address", socket, "--namespace", "k8s.io"]
    command += ["images", "import", archive]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{where} did not take the image archive {archive}: {done.stderr.strip()[-500:]}"
        raise TestbedError(message)
