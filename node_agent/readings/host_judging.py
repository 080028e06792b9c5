"""From looks at the host to evidence. Pure but for its own memory. Nothing here is a reason to touch hardware.

Limits: nearly full is where the kubelet begins to evict by default (nodefs.available 10 %, nodefs.inodesFree 5 %,
memory.available 100 MiB); corrected memory errors are those at which mcelog speaks by default (10 in 24 hours).
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from node_agent.probes.report import States
from node_agent.readings.host_readings import DIMM, Clock, Disk, HostLook, MainMemory, Mount
from node_agent.readings.rises import Rises, Steps
from outrider.health.findings import Evidence, seen

SOURCE: Final = "host"
_FULL: Final = 0.02  # share of free space or inodes below which nothing new should come
_SPACE_LOW: Final = 0.10
_INODES_LOW: Final = 0.05
_OFFSET_SECONDS: Final = 0.1  # far above what a working time service leaves
_ERROR_SECONDS: Final = 5.0  # some three hours without any correction
_JUMP_SECONDS: Final = 1.0
_JUMP_WINDOW_SECONDS: Final = 3600.0
_STALLED: Final = 0.10
_AVAILABLE_BYTES: Final = 100 * 1024 * 1024
_DAY_SECONDS: Final = 86400.0
_CORRECTED_MAX: Final = 10
_MOUNTS_KEPT: Final = 256


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives a restart."""

    boot_id: str = ""
    writable: list[str] = []
    """Mounts that were writable in this boot: device and path, with a space between."""
    synchronised: bool = False
    """The clock was in step in this boot."""
    rises: dict[str, Steps] = {}


class HostWatch:
    """Judges look after look. What lies below ``pods_dir`` is the pods' own."""

    def __init__(self, pods_dir: str) -> None:
        self._pods_dir = pods_dir.rstrip("/") + "/"
        self._rises = {
            "jump": Rises(_JUMP_WINDOW_SECONDS),
            "corrected": Rises(_DAY_SECONDS),
            "uncorrected": Rises(_DAY_SECONDS),
        }
        self._writable: frozenset[str] = frozenset()
        self._synchronised = False
        self._ahead: float | None = None
        self._jumps = 0

    def restore(self, kept: Kept, boot_id: str) -> None:
        """Take up what was kept, unless the node has booted since."""
        if kept.boot_id == boot_id:
            self._writable, self._synchronised = frozenset(kept.writable), kept.synchronised
            for name, rises in self._rises.items():
                rises.restore(kept.rises.get(name, {}))

    def judge(self, look: HostLook, now: float, monotonic: float) -> tuple[Kept, States]:
        """Return what is to be kept, and all that is bad. ``now`` is seconds since 1970."""
        bad = [
            *(evidence for disk in look.disks for evidence in _disk(disk, now)),
            *self._mounts(look.mounts, now),
            *(self._clock(look.clock, now) if look.clock is not None else ()),
            *self._jump(look.ahead, now, monotonic),
            *_memory(look.memory, now),
            *(evidence for dimm in look.dimms for evidence in self._dimm(dimm, now, monotonic)),
        ]
        rises = {name: rises.steps for name, rises in self._rises.items()}
        kept = Kept(
            boot_id=look.boot_id,
            writable=sorted(self._writable)[:_MOUNTS_KEPT],
            synchronised=self._synchronised,
            rises=rises,
        )
        return kept, States(bad=tuple(bad), readable=frozenset({""}))

    def _mounts(self, mounts: Collection[Mount], now: float) -> Iterator[Evidence]:
        """A file system that was writable and no longer is: the kernel makes it so when its disk fails."""
        names = {f"{mount.device} {mount.path}": mount for mount in mounts if not self._of_others(mount)}
        for name, mount in sorted(names.items()):
            if not mount.writable and name in self._writable:
                line = f"{mount.path} ({mount.device}) was writable and is read-only now"
                yield _node("host/read-only", line, now, mount.path)
        self._writable = self._writable & names.keys() | {name for name, mount in names.items() if mount.writable}

    def _of_others(self, mount: Mount) -> bool:
        """Volumes are the pods' own, and an update of the system makes /boot writable for a moment."""
        return mount.path.startswith((self._pods_dir, "/boot"))

    def _clock(self, clock: Clock, now: float) -> Iterator[Evidence]:
        """A clock that was in step and no longer is: some time services never tell the kernel that they work."""
        if not clock.synchronised and self._synchronised:
            yield _node("host/clock-unsynchronised", "nothing keeps the clock in step any more", now)
        elif clock.synchronised and abs(clock.offset) >= _OFFSET_SECONDS:
            yield _node("host/clock-offset", f"the clock is {clock.offset:+.3f} s off its time source", now)
        elif clock.synchronised and clock.error_max >= _ERROR_SECONDS:
            line = f"the clock may be up to {clock.error_max:.1f} s off: nothing has corrected it for long"
            yield _node("host/clock-offset", line, now)
        self._synchronised |= clock.synchronised

    def _jump(self, ahead: float, now: float, monotonic: float) -> Iterator[Evidence]:
        step = ahead - self._ahead if self._ahead is not None else 0.0
        self._ahead = ahead
        self._jumps += abs(step) >= _JUMP_SECONDS
        times = self._rises["jump"].note("", self._jumps, monotonic)
        if times:
            line = f"the clock was set {math.ceil(times)} times within the last hour, by a second or more"
            yield _node("host/clock-jump", line, now)

    def _dimm(self, dimm: DIMM, now: float, monotonic: float) -> Iterator[Evidence]:
        where = f"memory module {dimm.label or dimm.name}"
        corrected = self._risen("corrected", dimm.name, dimm.corrected, monotonic)
        uncorrected = self._risen("uncorrected", dimm.name, dimm.uncorrected, monotonic)
        if corrected > _CORRECTED_MAX:
            line = f"{where}: {corrected:.0f} corrected errors within 24 hours, limit {_CORRECTED_MAX}"
            yield _node("host/memory-corrected", line, now, dimm.name)
        if uncorrected:
            line = f"{where}: {math.ceil(uncorrected)} uncorrected errors within 24 hours"
            yield _node("host/memory-uncorrected", line, now, dimm.name)

    def _risen(self, kind: str, name: str, value: int | None, monotonic: float) -> float:
        return 0.0 if value is None else self._rises[kind].note(name, value, monotonic)


def _disk(disk: Disk, now: float) -> Iterator[Evidence]:
    if disk.problem:
        yield _node("host/disk-unreadable", f"{disk.path}: {disk.problem}", now, disk.path)
        return
    if disk.read_only:
        yield _node("host/read-only", f"{disk.path} can't be written: read-only file system", now, disk.path)
    space, inodes = _share(disk.blocks_free, disk.blocks), _share(disk.inodes_free, disk.inodes)
    line = f"{disk.path}: {space:.1%} of space and {inodes:.1%} of inodes free"
    if space < _FULL or inodes < _FULL:
        yield _node("host/disk-full", line, now, disk.path)
    elif space < _SPACE_LOW or inodes < _INODES_LOW:
        yield _node("host/disk-nearly-full", line, now, disk.path)


def _share(free: int, of: int) -> float:
    return free / of if of > 0 else 1.0


def _memory(memory: MainMemory, now: float) -> Iterator[Evidence]:
    if memory.stalled is not None and memory.stalled >= _STALLED:
        line = f"all tasks waited for memory for {memory.stalled:.0%} of the last minute"
        yield _node("host/memory-pressure", line, now)
    if memory.available is not None and memory.available < _AVAILABLE_BYTES:
        yield _node("host/memory-low", f"{memory.available // 1024**2} MiB of memory available", now)


def _node(code: str, line: str, now: float, subject_id: str = "") -> Evidence:
    return seen(code, now, subject_id=subject_id, line=line, source=SOURCE)


def urgent(kept: Kept, states: States) -> Mapping[str, object]:
    """Return what must be on disk at once when it changes: all but how far counters rose."""
    return {"kept": msgspec.structs.replace(kept, rises={}), "bad": frozenset(one.key for one in states.bad)}
