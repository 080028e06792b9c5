"""First process of a real node: mounts, services, and collecting what ends.

Runs as process 1 of the node's own namespaces, from a file and with the standard library only, so that a node
costs 10 MB beside its services. Its death is the node's power-off: the kernel then ends everything on the node.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_PENDING_S = 0.05
_IDLE_S = 60.0
_RESTART_S = 1.0
_STOP_S = 5.0
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM)


class Service:
    """A program of the node that is started once what it needs is there, and again when it ends."""

    def __init__(self, config: dict[str, Any], logs: Path) -> None:
        """Take name, argv, env and needs (a path) from the node's configuration."""
        self.name: str = config["name"]
        self._argv: list[str] = config["argv"]
        self._env = os.environ | config.get("env", {})
        self._needs = config.get("needs")
        self._log = logs / f"{config['node']}.{self.name}.log"
        self._not_before = 0.0
        self.pid: int | None = None

    def start_if_due(self, now: float) -> bool:
        """Start the service unless it runs, is paused after an end, or lacks what it needs; return whether it runs."""
        if self.pid is None and now >= self._not_before and (not self._needs or os.path.exists(self._needs)):
            self.pid = self._spawn()
        return self.pid is not None

    def ended(self, status: int, now: float) -> None:
        """Note that the service ended, and when to start it again."""
        self.pid = None
        self._not_before = now + _RESTART_S
        with self._log.open("a") as log:
            log.write(f"{self.name} ended with status {os.waitstatus_to_exitcode(status)}; starting it again\n")

    def _spawn(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.posix_spawnp(
            self._argv[0],
            self._argv,
            self._env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, str(self._log), flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
        )


def mount_all(mounts: list[dict[str, Any]]) -> None:
    """Bind the node's own folders and files over the machine's."""
    for entry in mounts:
        options = "bind,ro" if entry.get("read_only") else "bind"
        subprocess.run(["mount", "-o", options, entry["source"], entry["target"]], check=True)
        if entry.get("shared"):
            subprocess.run(["mount", "--make-rshared", entry["target"]], check=True)


def supervise(services: list[Service]) -> None:
    """Keep the services running until SIGTERM, collecting every process that ends on the node."""
    while True:
        now = time.monotonic()
        running = [s.start_if_due(now) for s in services]
        got = signal.sigtimedwait(_SIGNALS, _IDLE_S if all(running) else _PENDING_S)
        if got and got.si_signo == signal.SIGTERM:
            return
        _collect(services)


def stop(services: list[Service]) -> None:
    """Ask the services to end, the last first; what is still there dies with this process."""
    for service in reversed(services):
        if service.pid is not None:
            os.kill(service.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while any(s.pid for s in services) and time.monotonic() < deadline:
        signal.sigtimedwait(_SIGNALS, _PENDING_S)
        _collect(services)


def _collect(services: list[Service]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            for service in services:
                if service.pid == ended[0]:
                    service.ended(ended[1], time.monotonic())


def main(path: str) -> None:
    """Boot the node that the JSON file at path describes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    config = json.loads(Path(path).read_text())
    socket.sethostname(config["node"])
    for group in config["cgroups"]:
        (Path(group) / "cgroup.procs").write_text("0")
    mount_all(config["mounts"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    services = [Service(s | {"node": config["node"]}, Path(config["logs"])) for s in config["services"]]
    supervise(services)
    stop(services)


if __name__ == "__main__":
    main(sys.argv[1])
