"""Remove every trace of a testbed, whatever state it was left in."""

import os
import shutil
import subprocess
from pathlib import Path

from testbed import network, processes, state
from testbed.cgroups import Cgroups
from testbed.errors import TestbedError
from testbed.paths import ROOT, bulk_dir, state_dir, state_root

_MADE = "made-folders"


def remove(name: str) -> None:
    """End all processes of a testbed and remove its cgroups, network, mounts and folders.

    Raises:
        TestbedError: a mount is left below its folders, which would be emptied with them.
    """
    known = state.load(name)
    processes.end([p for p in processes.of_testbed(name) if p != os.getpid()], term_s=0)
    if ROOT:
        Cgroups().remove(cgroup(name))
        if known:
            network.remove_all(known.plan)
        unmount_below(state_dir(name), bulk_dir(name))
    for folder in (bulk_dir(name), state_dir(name)):
        shutil.rmtree(folder, ignore_errors=not folder.exists())
    if ROOT and not any(state.others(name)):
        _remove_made_folders()


def cgroup(name: str) -> str:
    """Control group of a testbed, below each hierarchy's root."""
    return f"outrider-{name}"


def make_mount_point(path: Path) -> None:
    """Create a folder of the machine that nodes bind their own over; `down` of the last testbed removes it."""
    if path.exists():
        return
    missing = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    with (state_root() / _MADE).open("a") as made:
        made.writelines(f"{p}\n" for p in missing)


def _remove_made_folders() -> None:
    made = state_root() / _MADE
    if not made.exists():
        return
    folders = {Path(line) for line in made.read_text().splitlines()}
    for folder in sorted(folders, key=lambda p: len(p.parts), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            unmount_below(folder)  # the first `ip netns add` on a machine mounts /run/netns on itself
            folder.rmdir()
    made.unlink()


def unmount_below(*folders: Path) -> None:
    """Unmount what lies below the folders, the deepest first."""
    for mount in sorted(_mounts_below(folders), reverse=True):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
    left = _mounts_below(folders)
    if left:
        message = f"{left[0]} is still mounted: end what uses it, `umount` it and run `down` again"
        raise TestbedError(message)


def _mounts_below(folders: tuple[Path, ...]) -> list[str]:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [m for m in mounts if any(Path(m).is_relative_to(f) for f in folders)]
