"""The step beacon: 64 bytes that each training rank keeps current in ``/outrider/rank.RANK``, read by the node agent.

Written by ``inpod/runtime/beacon.py``, which repeats ``FORMAT`` because it runs without Outrider's packages in the
user's image; a test compares the two. All numbers are little-endian. Eight-byte fields sit on eight-byte boundaries
and the writer stores the whole record with one slice assignment into a shared mapping, so a reader sees every field
whole, though two fields of one reading may stem from neighbouring steps.

| offset | field | type | meaning |
| --- | --- | --- | --- |
| 0 | magic | 8 bytes | ``OUTRIDER`` |
| 8 | version | u32 | 1; a reader ignores versions that it does not know |
| 12 | rank | u32 | global rank of the process |
| 16 | step | u64 | optimizer steps finished by this process, resumed ones included where known |
| 24 | last_step_unix | f64 | when the last step ended, seconds since 1970; 0 before the first |
| 32 | step_seconds | f64 | wall time of the last step, seconds; 0 before the second |
| 40 | checkpoint_step | i64 | step of the last finished checkpoint; -1 if none |
| 48 | pid | u32 | process id inside the container |
| 52 | reserved | 12 bytes | zero |
"""

import math
import struct
from typing import Final

import msgspec

FORMAT: Final = "<8sIIQddqI12x"
MAGIC: Final = b"OUTRIDER"
VERSION: Final = 1
SIZE: Final = struct.calcsize(FORMAT)
MAX_RANK: Final = 1_000_000  # far above any job; a larger number is garbage, not a rank
MAX_STEP: Final = 2**53  # the largest count that JSON readers keep exact


class Beacon(msgspec.Struct, frozen=True):
    """One reading of a rank's beacon; times in seconds, see the table above."""

    rank: int
    step: int
    last_step_unix: float
    step_seconds: float
    checkpoint_step: int
    pid: int


def encode(beacon: Beacon) -> bytes:
    """Return the 64 bytes of a beacon."""
    return struct.pack(
        FORMAT,
        MAGIC,
        VERSION,
        beacon.rank,
        beacon.step,
        beacon.last_step_unix,
        beacon.step_seconds,
        beacon.checkpoint_step,
        beacon.pid,
    )


def decode(raw: bytes) -> Beacon:
    """Return what the bytes say. Raises ValueError that names the field where they are no beacon of version 1.

    Pods are untrusted: every field is checked for range before anyone computes with it.
    """
    if len(raw) != SIZE:
        raise ValueError(f"size: {len(raw)} bytes, a beacon has {SIZE}")
    magic, version, *fields = struct.unpack(FORMAT, raw)
    if magic != MAGIC:
        raise ValueError("magic: not a beacon")
    if version != VERSION:
        raise ValueError(f"version: {version} is not known, only {VERSION}")
    beacon = Beacon(*fields)
    _check_ranges(beacon)
    return beacon


def _check_ranges(beacon: Beacon) -> None:
    ranges = {
        "rank": beacon.rank <= MAX_RANK,
        "step": beacon.step <= MAX_STEP,
        "last_step_unix": math.isfinite(beacon.last_step_unix) and beacon.last_step_unix >= 0,
        "step_seconds": math.isfinite(beacon.step_seconds) and beacon.step_seconds >= 0,
        "checkpoint_step": -1 <= beacon.checkpoint_step <= MAX_STEP,
    }
    bad = [name for name, good in ranges.items() if not good]
    if bad:
        raise ValueError(f"{bad[0]}: out of range")
