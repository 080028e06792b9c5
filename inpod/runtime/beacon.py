"""The step beacon: 64 bytes in ``/outrider/rank.RANK`` that outlive the process.

The layout is the one of ``outrider/api/beacon.py``, repeated because this file runs without Outrider's packages.
"""

from __future__ import annotations

import mmap
import os
import struct

from .checkpoint import DONE_PREFIX

FORMAT = "<8sIIQddqI12x"
MAGIC = b"OUTRIDER"
VERSION = 1
SIZE = struct.calcsize(FORMAT)
NO_CHECKPOINT = -1
PREFIX = "rank."


class Beacon:
    """The file of one rank, mapped into memory. Raises OSError where the folder can't be written."""

    def __init__(self, directory: str, rank: int) -> None:
        self._rank = rank
        self._pid = os.getpid()
        descriptor = os.open(os.path.join(directory, f"{PREFIX}{rank}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(descriptor, SIZE)
            self._map = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self.last_checkpoint_step = self._read_checkpoint_step()

    def _read_checkpoint_step(self) -> int:
        """Return what an earlier process of this rank in this pod recorded (containers restart in place)."""
        magic, version, rank, _, _, _, checkpoint_step, _ = struct.unpack(FORMAT, self._map[:])
        known = magic == MAGIC and version == VERSION and rank == self._rank
        return int(checkpoint_step) if known else NO_CHECKPOINT

    def write(self, step: int, unix: float, seconds: float, checkpoint_step: int) -> None:
        """Publish one step: its number, when it ended (seconds since 1970), how long it took, the last checkpoint."""
        # One slice assignment: a reader sees each aligned field whole.
        self._map[:] = struct.pack(FORMAT, MAGIC, VERSION, self._rank, step, unix, seconds, checkpoint_step, self._pid)


def remove_stale(directory: str, current: range) -> None:
    """Remove files of ranks that left this pod: an elastic job numbers its ranks anew after each rendezvous.

    ``current`` are the ranks that live in the pod now. A rank elsewhere whose process is still alive keeps its file.
    """
    for name in os.listdir(directory):
        number = name[len(PREFIX) :]
        if not name.startswith(PREFIX) or not number.isdigit() or int(number) in current:
            continue
        if not _alive(os.path.join(directory, name)):
            for stale in (name, f"{DONE_PREFIX}{number}"):
                _remove(os.path.join(directory, stale))


def _alive(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            pid = struct.unpack(FORMAT, file.read(SIZE))[-1]
        os.kill(pid, 0)  # signal 0 asks whether the process exists and sends nothing
    except (ProcessLookupError, struct.error, FileNotFoundError):
        return False
    except OSError:
        return True  # another user's process
    return bool(pid)


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except FileNotFoundError:
        return  # another rank of the pod was faster
