"""A node's kernel log stand-in: a regular file with the records that a reader of /dev/kmsg gets.

One record a line, `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;MESSAGE` (Linux, Documentation/ABI/testing/dev-kmsg):
priority is facility * 8 + level, the time is the machine's monotonic clock, and bytes outside printable ASCII
are written as \\xHH.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from testbed import locks

WARNING = 4
"""Level of the NVIDIA driver's lines; the facility of the kernel is 0."""


def create(path: Path) -> None:
    """Begin an empty log, as after a boot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


clear = create
"""A boot begins a new log."""


def append(path: Path, messages: Sequence[str], level: int = WARNING) -> None:
    """Add one record a message, numbered on from the last one, in one write."""
    with locks.waiting(path.with_name(f".{path.name}.lock")):
        sequence = _next_sequence(path)
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        records = [f"{level},{sequence + i},{now_us + i},-;{escaped(message)}\n" for i, message in enumerate(messages)]
        with path.open("ab", buffering=0) as file:
            file.write("".join(records).encode("ascii"))


def escaped(message: str) -> str:
    """Message as /dev/kmsg shows it: what is not printable ASCII, and the backslash, as \\xHH."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 0x5C else f"\\x{byte:02x}" for byte in message.encode())


def _next_sequence(path: Path) -> int:
    if not path.exists():
        return 0
    records = [line for line in path.read_bytes().splitlines() if line[:1].isdigit()]
    return int(records[-1].split(b",")[1]) + 1 if records else 0
