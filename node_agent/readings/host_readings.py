"""What the host tells of its disks, mounts, clock and memory, and how its texts are read. Pure.

A text that is missing or garbage gives None, which is no finding: each of these is a bystander of training, and the
kubelet watches most of them too.
"""

import re
import struct
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_FULL_60: Final = re.compile(r"^full .*\bavg60=(\d{1,3}\.\d{1,4})\b", re.MULTILINE)
_KIB_LINE: Final = re.compile(r"^(\w{1,40}): +(\d{1,18}) kB$", re.MULTILINE)
_DISK_SYSTEMS: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})

# struct timex of the kernel (include/uapi/linux/timex.h) on 64-bit machines: modes, offset, freq, maxerror, esterror,
# status; the rest is not looked at.
TIMEX_BYTES: Final = 208
_TIMEX: Final = struct.Struct("=i4xqqqqi")
_STA_UNSYNC: Final = 0x40
_STA_NANO: Final = 0x2000
_TIME_ERROR: Final = 5


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The file system that a path lies on. Sizes in blocks; 0 where the file system has no such limit."""

    path: str
    blocks: int = 0
    blocks_free: int = 0
    """Free for programs that are not root."""
    inodes: int = 0
    inodes_free: int = 0
    read_only: bool = False
    problem: str = ""
    """Why it could not be asked; empty where it could."""


class Mount(msgspec.Struct, frozen=True):
    """A file system on a block device."""

    device: str
    path: str
    writable: bool


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel knows about its clock. Seconds."""

    synchronised: bool
    offset: float
    """Between the clock and the time source, as far as it is being corrected."""
    error_max: float
    """Bound of the error that the kernel keeps: grows by 0.5 ms a second while nothing corrects the clock."""


class MainMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The host's main memory."""

    stalled: float | None = None
    """Share of the last minute in which all tasks waited for memory, 0 to 1; None where the kernel keeps no such."""
    available: int | None = None
    """Bytes that programs can still get."""


class DIMM(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one memory module since the driver was loaded."""

    name: str
    label: str = ""
    corrected: int | None = None
    uncorrected: int | None = None


class HostLook(msgspec.Struct, frozen=True, kw_only=True):
    """All of the host at one time."""

    boot_id: str = ""
    disks: tuple[Disk, ...] = ()
    mounts: tuple[Mount, ...] = ()
    clock: Clock | None = None
    ahead: float = 0.0
    """Wall clock minus the time since boot, seconds: constant but for corrections."""
    memory: MainMemory = MainMemory()
    dimms: tuple[DIMM, ...] = ()


def judged_disks(disks: Iterable[Disk], written: Collection[str]) -> tuple[Disk, ...]:
    """Return each file system once, under the first path that lies on it, and those of ``written`` if read-only.

    Others are not taken for read-only: the root of a container is so on purpose.
    """
    told: list[Disk] = []
    judged: list[Disk] = []
    for disk in disks:
        read_only = disk.read_only and disk.path in written
        if disk.problem or read_only or not any(_same(disk, other) for other in told):
            judged.append(msgspec.structs.replace(disk, read_only=read_only))
        told.append(disk)
    return tuple(judged)


def _same(one: Disk, other: Disk) -> bool:
    """True where both are the same by all that is seen: of equal size and, but for what was just written, as full.

    A container's root does not tell which of the host's file systems it lies on.
    """
    size = (one.blocks, one.inodes) == (other.blocks, other.inodes)
    return size and abs(one.blocks_free - other.blocks_free) <= one.blocks // 100


def mounts_of(table: str) -> tuple[Mount, ...]:
    """Return the mounts of disk file systems in a text of the form of /proc/mounts; other lines are left out."""
    rows = (line.split(" ") for line in table.splitlines())
    return tuple(
        Mount(_unescaped(row[0]), _unescaped(row[1]), "ro" not in row[3].split(","))
        for row in rows
        if len(row) >= 4 and row[2] in _DISK_SYSTEMS
    )


def clock_of(timex: bytes, state: int) -> Clock | None:
    """Return what adjtimex(2) answered: its structure and its return value. None where that is no answer."""
    if len(timex) < _TIMEX.size or state < 0:
        return None
    _, offset, _, error_max, _, status = _TIMEX.unpack_from(timex)
    unit = 1e-9 if status & _STA_NANO else 1e-6
    synchronised = state != _TIME_ERROR and not status & _STA_UNSYNC
    return Clock(synchronised=synchronised, offset=offset * unit, error_max=error_max * 1e-6)


def memory_of(pressure: str, meminfo: str) -> MainMemory:
    """Return the memory's state from the texts of /proc/pressure/memory and /proc/meminfo."""
    full = _FULL_60.search(pressure)
    sizes = dict(_KIB_LINE.findall(meminfo))
    available = sizes.get("MemAvailable")
    return MainMemory(
        stalled=min(float(full[1]) / 100, 1.0) if full else None,
        available=int(available) * 1024 if available is not None else None,
    )


def _unescaped(text: str) -> str:
    """Spaces and the like are written as octal numbers in mount tables."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
