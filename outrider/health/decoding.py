"""What an Xid line tells beyond its number: a more specific code, words for people, and the NVLink it names.

Order of belief (architecture.md): the driver's recovery action, which Xid 154 announces; the registers of Xid 74 and
the words of NVLink5; the number; unknown. What can't be read keeps the plain code of its number.
"""

import re
from typing import Final

import msgspec

from outrider.health import nvlink5, xid74
from outrider.health.catalogue import XID_PREFIX, XID_RECOVERY_PREFIX

_LINK: Final = re.compile(r"\blink\s{1,4}(-?\d{1,3})(?!\d)", re.IGNORECASE)
_CAUSE: Final = re.compile(r"\bcaused by previous Xid (\d{1,6})(?!\d)")
_ADVICE: Final = re.compile(
    r"\baction changed from .{1,60}? to (?:0x([0-9a-fA-F]{1,4})\b)?\s{0,2}\(?([A-Za-z][A-Za-z0-9 ]{0,39})?"
)
"""Anchored by more than fits into the name of a process (15 characters), which stands in the line before it."""
_ACTIONS: Final = {
    "none": 0,
    "gpu reset required": 1,
    "pf flr": 1,
    "node reboot required": 2,
    "os reboot": 2,
    "drain p2p": 3,
    "drain and reset": 4,
    "recover imex domain": 5,
    "bus reset": 6,
    "system reboot": 7,
}
"""Words of all drivers for the recovery actions, by NVML's number."""
_NAMES_LINK: Final = (74, 137, *nvlink5.XIDS)
_PLAIN_KINDS: Final = (None, xid74.Kind.REPEATED, xid74.Kind.UNLISTED)  # no milder and no graver than Xid 74 itself


class Decoded(msgspec.Struct, frozen=True):
    """A code that has a row in the catalogue, or of an unlisted number that number's code."""

    code: str
    detail: str = ""
    """What the code leaves out, for people: unit, sub-code, bits, cause; empty where the number is all."""
    link: int | None = None
    """Number of the NVLink that the line names."""


def decode(xid: int, message: str, driver_version: str = "") -> Decoded:
    """Return what the line of an Xid says. ``message`` is the record's text, or what follows the number.

    ``driver_version`` such as 580.65.06 decides the layout of NVLink5 words; empty where it is not known.
    """
    suffix, detail = _suffix(xid, message, driver_version)
    link = _LINK.search(message) if xid in _NAMES_LINK else None
    number = int(link[1]) if link else -1
    return Decoded(f"{XID_PREFIX}{xid}{suffix}", detail, number if number >= 0 else None)


def cause_of(message: str) -> int | None:
    """Return the Xid that a line of Xid 45 blames, where the driver names it (R580 and newer do)."""
    cause = _CAUSE.search(message)
    return int(cause[1]) if cause else None


def _suffix(xid: int, message: str, driver_version: str) -> tuple[str, str]:
    if xid == 154:
        return _advice(message)
    if xid == 74:
        registers = xid74.read(message)
        return "" if registers.kind in _PLAIN_KINDS else f".{registers.kind}", registers.detail
    if xid in nvlink5.XIDS:
        words = nvlink5.read(xid, message, driver_version)
        return f".{words.resolution}" if words.resolution else "", words.detail
    if xid == 45 and (cause := cause_of(message)):
        return "", f"caused by Xid {cause}"
    return "", ""


def _advice(message: str) -> tuple[str, str]:
    """Believe the number before the words, which differ by driver, and the words where there is no number."""
    advice = _ADVICE.search(message)
    words = (advice[2] or "").strip() if advice else ""
    number = int(advice[1], 16) if advice and advice[1] else _ACTIONS.get(words.lower())
    if number is None:
        return "", "no recovery action that can be read"
    return f"{XID_RECOVERY_PREFIX.removeprefix(f'{XID_PREFIX}154')}{number}", words
