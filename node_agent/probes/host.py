"""The host probe: disks, mounts, clock and memory, from statvfs(2), adjtimex(2), procfs and sysfs.

A disk that hangs blocks whoever asks it: so all of it happens aside.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from node_agent.config import Config
from node_agent.kept_file import KeptFile
from node_agent.probes.aside import Aside
from node_agent.probes.files import names_in, read_or_empty
from node_agent.probes.registry import probe
from node_agent.probes.report import Report
from node_agent.readings.host_judging import HostWatch, Kept, urgent
from node_agent.readings.host_readings import (
    DIMM,
    TIMEX_BYTES,
    Clock,
    Disk,
    HostLook,
    clock_of,
    judged_disks,
    memory_of,
    mounts_of,
)
from node_agent.readings.rises import counter_of

_TIMEOUT_SECONDS: Final = 20.0
_KEPT: Final = "host.json"


class HostProbe:
    """Looks at the host."""

    wake: asyncio.Event | None = None
    timeout_seconds = _TIMEOUT_SECONDS

    def __init__(self, config: Config, read_clock: Callable[[], Clock | None]) -> None:
        self.period_seconds = config.host_period_seconds
        self._written = (config.state_dir, config.kubelet_pods_dir)
        self._proc, self._edac = config.proc_path, f"{config.sys_path}/devices/system/edac/mc"
        self._boot_id_path = config.boot_id_path
        self._watch = HostWatch(config.kubelet_pods_dir)
        self._file = KeptFile(Path(config.state_dir) / _KEPT, Kept)
        self._started = False
        self._read_clock = read_clock
        self._aside = Aside[Report]()

    async def read(self) -> Report:
        """Return all that is bad."""
        return await self._aside.run(self._look)

    def _look(self) -> Report:
        look = HostLook(
            boot_id=read_or_empty(self._boot_id_path),
            disks=judged_disks([disk for disk in map(_disk, ("/", *self._written)) if disk], self._written),
            mounts=mounts_of(read_or_empty(f"{self._proc}/1/mounts")),
            clock=self._read_clock(),
            ahead=time.time() - time.clock_gettime(time.CLOCK_BOOTTIME),
            memory=memory_of(read_or_empty(f"{self._proc}/pressure/memory"), read_or_empty(f"{self._proc}/meminfo")),
            dimms=tuple(_dimms(self._edac)),
        )
        if not self._started:
            self._watch.restore(self._file.read() or Kept(), look.boot_id)
            self._started = True
        monotonic = time.monotonic()
        kept, states = self._watch.judge(look, time.time(), monotonic)
        self._file.keep(kept, urgent(kept, states), monotonic)
        return Report(states=states)

    async def close(self) -> None:
        """Nothing is held open."""


def _disk(path: str) -> Disk | None:
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Disk(path=path, problem=f"can't be read: {error.strerror or error}")
    return Disk(
        path=path,
        blocks=found.f_blocks,
        blocks_free=found.f_bavail,
        inodes=found.f_files,
        inodes_free=found.f_favail,
        read_only=bool(found.f_flag & os.ST_RDONLY),
    )


def _dimms(root: str) -> Iterator[DIMM]:
    """Yield all memory modules; of a controller that does not know its modules, the controller itself."""
    for controller in names_in(root):
        if not controller.startswith("mc"):
            continue
        modules = [name for name in names_in(f"{root}/{controller}") if name.startswith(("dimm", "rank"))]
        for module in modules:
            folder = f"{root}/{controller}/{module}"
            label = read_or_empty(f"{folder}/dimm_label")
            yield _module(f"{controller}/{module}", label, f"{folder}/dimm_ce_count", f"{folder}/dimm_ue_count")
        if not modules:
            yield _module(controller, "", f"{root}/{controller}/ce_count", f"{root}/{controller}/ue_count")


def _module(name: str, label: str, corrected: str, uncorrected: str) -> DIMM:
    return DIMM(
        name=name,
        label=label[:64],
        corrected=counter_of(read_or_empty(corrected)),
        uncorrected=counter_of(read_or_empty(uncorrected)),
    )


def _kernel_clock() -> Callable[[], Clock | None]:
    """Return a function that asks the kernel; it needs no rights, since it changes nothing."""
    import ctypes

    adjtimex = ctypes.CDLL(None).adjtimex

    def ask() -> Clock | None:
        timex = ctypes.create_string_buffer(TIMEX_BYTES)  # modes is 0: only read
        state = adjtimex(timex)
        return clock_of(timex.raw, state)

    return ask


@probe("host")
def _build(config: Config) -> HostProbe:
    return HostProbe(config, _kernel_clock())
