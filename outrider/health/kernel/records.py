"""Records of the kernel log as /dev/kmsg gives them (Linux, Documentation/ABI/testing/dev-kmsg)."""

import re
from typing import Final

import msgspec

_RECORD: Final = re.compile(rb"(\d{1,6}),(\d{1,18}),(\d{1,18}),[^;]{0,256};(.*)")
_KERNEL_FACILITY: Final = 0


class Record(msgspec.Struct, frozen=True):
    """One record. ``uptime_seconds`` is its time on the machine's monotonic clock."""

    facility: int
    sequence: int
    uptime_seconds: float
    message: str

    @property
    def from_kernel(self) -> bool:
        """True where the kernel wrote it: what user space writes to the log carries another facility, always."""
        return self.facility == _KERNEL_FACILITY


def parse(raw: bytes) -> Record | None:
    """Return the record in ``raw``, None where it is none; lines that continue a record are left out."""
    match = _RECORD.match(raw.split(b"\n", 1)[0])
    if match is None:
        return None
    priority, sequence, microseconds, message = match.groups()
    text = message.decode("utf-8", "replace")
    return Record(int(priority) >> 3, int(sequence), int(microseconds) / 1e6, text)
