"""What the NVIDIA driver's lines in the kernel log say: Xids, SXids, and faults told in words only.

A line counts only if the driver's prefix opens it: an Xid quoted inside another program's line is no Xid. Devices are
spelled with and without ``PCI:``, with four or eight digits of the domain, with or without the function, and with a
MIG instance behind; the address that comes out has eight digits and no function, as NVML writes it.
"""

import re
from typing import Final

import msgspec

_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"
_XID: Final = re.compile(r"NVRM: Xid\s*\(([^)]{0,128})\)\s*:\s*(\d{1,6})(?!\d)(.*)", re.DOTALL)
_SXID: Final = re.compile(r"(?:nvidia-nvswitch\d{1,4}|NVRM): SXid\s*\(([^)]{0,128})\)\s*:\s*(\d{1,6})(?!\d)")
_GPU_TEXT: Final = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?({_ADDRESS})(?:\.[0-9a-fA-F])?:\s*(.*)", re.DOTALL)
_UUID: Final = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAMED_AHEAD: Final = re.compile(rf"NVRM: The NVIDIA GPU ({_ADDRESS})")
_RECOVERY: Final = re.compile(r"\bto 0x([0-9a-fA-F]{1,4})\b")
_JOIN_LINES: Final = 4  # the driver's off-bus notice spans three records; another device's line may come between

_WORDS: Final = (
    ("fallen off the bus", "kernel/off-bus"),
    ("RmInitAdapter failed", "kernel/init-failed"),
    ("NV_ERR_RESET_REQUIRED", "kernel/reset-required"),
)


class Happening(msgspec.Struct, frozen=True):
    """What a line says: a code, and the PCI address or UUID of the GPU where it names one."""

    code: str
    address: str = ""
    uuid: str = ""
    switch: str = ""


class Naming(msgspec.Struct, frozen=True):
    """The driver tells which UUID the GPU at a PCI address has."""

    address: str
    uuid: str


class DriverLines:
    """Reads messages in order; remembers a device named ahead of the notice about it."""

    def __init__(self) -> None:
        self._ahead = ("", 0)

    def read(self, message: str) -> Happening | Naming | None:
        """Return what the message says, None where it says nothing about the hardware."""
        address, lines_left = self._ahead
        self._ahead = (address, lines_left - 1) if lines_left > 1 else ("", 0)
        if message.startswith("NVRM: Xid"):
            return _xid(message)
        if switch := _SXID.match(message):
            return Happening(f"sxid/{int(switch[2])}", switch=_address(switch[1]) or switch[1])
        if ahead := _NAMED_AHEAD.match(message):
            self._ahead = (canonical(ahead[1]), _JOIN_LINES)
            return None
        return _words(message, address) if message.startswith("NVRM: ") else None


def canonical(address: str) -> str:
    """Return a PCI address as NVML writes it, without function: 00000000:19:00."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain:0>8}:{rest}"


def _address(device: str) -> str:
    found = re.search(_ADDRESS, device)
    return canonical(found[0]) if found else ""


def _xid(message: str) -> Happening:
    match = _XID.match(message)
    if match is None:
        return Happening("xid/malformed", address=_address(message))
    device, number, rest = match[1], int(match[2]), match[3]
    uuid = _UUID.search(device)
    code = _recovery_code(rest) if number == 154 else f"xid/{number}"
    return Happening(code, address=_address(device), uuid=uuid[0] if uuid else "")


def _recovery_code(rest: str) -> str:
    """Xid 154 carries the driver's advice: its number where the line holds one."""
    advised = _RECOVERY.search(rest)
    return f"xid/154.{int(advised[1], 16)}" if advised else "xid/154"


def _words(message: str, address_ahead: str) -> Happening | Naming | None:
    placed = _GPU_TEXT.match(message)
    address = canonical(placed[1]) if placed else address_ahead
    if placed and (uuid := _UUID.fullmatch(placed[2].strip())):
        return Naming(address, uuid[0])
    code = next((code for words, code in _WORDS if words in message), None)
    # Without a device only the notice of a lost GPU is clear enough to act on; the others often repeat a placed line.
    return Happening(code, address=address) if code and (address or code == "kernel/off-bus") else None
