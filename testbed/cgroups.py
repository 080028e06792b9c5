"""Control groups of the real nodes, on cgroup v1 and v2."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_V2_WANTED = ("cpuset", "cpu", "io", "memory", "pids", "hugetlb")
_GONE_S = 5.0


class Cgroups:
    """The hierarchies of a machine: one on v2, one per controller on v1."""

    def __init__(self, mount: Path = _MOUNT) -> None:
        """Look at the hierarchies mounted under `mount`."""
        self.is_v2 = (mount / "cgroup.controllers").exists()
        self._mount = mount

    @property
    def hierarchies(self) -> list[Path]:
        """Root folders of the hierarchies; /cpu,cpuacct and its links count once."""
        if self.is_v2:
            return [self._mount]
        return sorted(p for p in self._mount.iterdir() if p.is_dir() and not p.is_symlink())

    def create(self, group: str) -> None:
        """Create a group like `outrider-default/gpu-0` in every hierarchy, ready to hold groups of pods."""
        for root in self.hierarchies:
            folder = root
            for part in group.split("/"):
                parent, folder = folder, folder / part
                if self.is_v2:
                    _delegate(parent)
                folder.mkdir(exist_ok=True)
                if (parent / "cpuset.cpus").exists() and not self.is_v2:
                    _inherit_cpuset(parent, folder)
            if self.is_v2:
                _delegate(folder)

    def processes(self, group: str) -> set[int]:
        """Every process in a group or below it."""
        found: set[int] = set()
        for folder in self._folders(group):
            with contextlib.suppress(OSError):
                found.update(map(int, (folder / "cgroup.procs").read_text().split()))
        return found

    def remove(self, group: str) -> None:
        """Kill what is in a group and remove it with all groups below; nothing happens if there is none."""
        deadline = time.monotonic() + _GONE_S
        while (pids := self.processes(group)) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for folder in self._folders(group):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folders(self, group: str) -> Iterator[Path]:
        """Folders of a group in all hierarchies, the deepest first."""
        for root in self.hierarchies:
            for folder, _, _ in os.walk(root / group, topdown=False):
                yield Path(folder)


def _delegate(folder: Path) -> None:
    """Let children of a v2 group use the controllers that it has; the kernel may refuse single ones."""
    available = (folder / "cgroup.controllers").read_text().split()
    for controller in _V2_WANTED:
        if controller in available:
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(parent: Path, child: Path) -> None:
    """On v1 a new group has no processors and no memory until they are copied down."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        (child / name).write_text((parent / name).read_text())
