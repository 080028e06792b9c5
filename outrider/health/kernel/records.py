"""Records of the kernel log as /dev/kmsg gives them (Linux, Documentation/ABI/testing/dev-kmsg)."""

import re
from typing import Final

import msgspec

MESSAGE_BYTES: Final = 8 * 1024  # the kernel's own limit of a record (PRINTK_MESSAGE_MAX); more is garbage
DRILL: Final = "outrider-drill: "
"""Opens a record that user space wrote to rehearse a fault; the kernel's line follows."""
_RECORD: Final = re.compile(rb"(\d{1,6}),(\d{1,18}),(\d{1,18}),([^;\n]{0,256});([^\n]*)")
_ESCAPE: Final = re.compile(rb"\\x([0-9a-f]{2})")
_KERNEL_FACILITY: Final = 0


class Record(msgspec.Struct, frozen=True):
    """One record. ``uptime_seconds`` is its time on the machine's monotonic clock."""

    facility: int
    sequence: int
    uptime_seconds: float
    raw: bytes
    """The text with /dev/kmsg's escapes, without the lines that hold the device's properties."""
    continues: bool = False
    """The text goes on where the record before it ended, in the same line."""

    @property
    def from_kernel(self) -> bool:
        """True where the kernel wrote it: what user space writes to the log carries another facility, always."""
        return self.facility == _KERNEL_FACILITY

    @property
    def message(self) -> str:
        r"""The text. A record of several lines, escaped as ``\x0a``, has them again."""
        return text_of(self.raw)


def parse(raw: bytes) -> Record | None:
    """Return the record in ``raw``, None where it is none."""
    match = _RECORD.match(raw)
    if match is None:
        return None
    priority, sequence, microseconds, flags, text = match.groups()
    continues = flags.startswith(b"c")
    return Record(int(priority) >> 3, int(sequence), int(microseconds) / 1e6, text[:MESSAGE_BYTES], continues)


def text_of(raw: bytes) -> str:
    """Return the text of a record with its escapes undone; bytes that are no UTF-8 are replaced."""
    if b"\\x" in raw:
        raw = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), raw)
    return raw.decode("utf-8", "replace")
