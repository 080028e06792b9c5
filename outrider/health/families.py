"""Families of codes: kinds of trouble that a part shared by many nodes can cause. Pure.

A code belongs to one family at most. Not the families of incidents.py: those tell which codes show one broken part of
one node.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from outrider.api.gpunode import Finding, Verdict
from outrider.api.times import parse_rfc3339
from outrider.health.catalogue import RECOVERY_PREFIX

SILENT_AGENT: Final = "monitor/silent"  # in no catalogue: the agent itself does not report


class Family(StrEnum):
    """Kinds of trouble that a shared part can cause."""

    FABRIC = "fabric"  # NVLink, NVSwitch
    NETWORK = "network"  # NICs and the switches behind them
    POWER = "power"  # power, cooling, the PCIe bus: GPUs gone
    SILENCE = "silence"  # nothing is known: never a reason to touch hardware


_PREFIXES: Final[Mapping[str, Family]] = {
    "nvlink": Family.FABRIC,
    "fabric": Family.FABRIC,
    "imex": Family.FABRIC,
    "sxid": Family.FABRIC,
    "nic": Family.NETWORK,
    "thermal": Family.POWER,
}
_CODES: Final[Mapping[str, Family | None]] = {
    "dcgm/nvlink-errors": Family.FABRIC,
    "dcgm/nvlink-crc": Family.FABRIC,
    # A NIC's own business, or its node's: no switch can be the cause.
    **dict.fromkeys(("nic/unreadable", "nic/device-node", "nic/management-node", "nic/verbs-missing"), None),
    **dict.fromkeys(("nic/pcie-width", "nic/pcie-narrow", "nic/pcie-speed"), None),
    # A job that ends in the middle of its transfers brings these on all its nodes.
    **dict.fromkeys(("nic/receiver-not-ready", "nic/efa-remote-errors"), None),
    **dict.fromkeys(("gpu/lost", "gpu/missing", "gpu/unlisted", "gpu/count", "gpu/power-cable"), Family.POWER),
    **dict.fromkeys(("kernel/off-bus", "kernel/pcie-link-down", "kernel/pcie-lost", "kernel/cpu-hot"), Family.POWER),
    **dict.fromkeys(("clocks/hw-thermal", "clocks/hw-slowdown", "clocks/power-brake"), Family.POWER),
    **dict.fromkeys(("monitor/blind", "gpu/unreadable", SILENT_AGENT), Family.SILENCE),
    **dict.fromkeys(("nvml/init", "nvml/no-driver", "nvml/no-access", "nvml/no-gpu"), Family.SILENCE),
    "nvml/mismatch": Family.SILENCE,
}
# Numbers of the Xid catalogue: NVLink 74, 136, 144-150, 155; power 54; off the bus 79, 167.
_XIDS: Final[Mapping[int, Family]] = {
    **dict.fromkeys((74, 136, *range(144, 151), 155), Family.FABRIC),
    **dict.fromkeys((54, 79, 167), Family.POWER),
}
_PROGRAM_XIDS: Final = frozenset({13, 31, 32, 43, 68, 69, 137})  # caused by the program (Xid catalogue)
_ECHO_XID: Final = 45
_ADVICE_XID: Final = 154
_RESET_WANTED: Final = frozenset({"gpu/reset-required", "kernel/reset-required"})
_EVENT_SOURCES: Final = frozenset({"xid", "sxid", "kernel"})  # their last sighting is an event, a state's is a reading
_SWITCH_SOURCE: Final = "sxid"


def family_of(code: str) -> Family | None:
    """Return the family that a code is a witness of, None for one that says nothing of shared parts."""
    number = _xid(code)
    if number is not None:
        return _XIDS.get(number)
    return _CODES[code] if code in _CODES else _PREFIXES.get(code.partition("/")[0])


def _xid(code: str) -> int | None:
    """Return the number of an Xid, whatever detail follows it, such as 145 of xid/145.RLW."""
    source, _, detail = code.partition("/")
    digits = detail.partition(".")[0]
    usable = source == "xid" and digits.isascii() and digits.isdigit() and len(digits) < 10
    return int(digits) if usable else None


def is_advice(code: str) -> bool:
    """True for what the driver wants done (Xid 154, NVML field 230): it names no cause."""
    return _xid(code) == _ADVICE_XID or code.startswith(RECOVERY_PREFIX) or code in _RESET_WANTED


def times_of(finding: Finding) -> tuple[float, ...]:
    """Return when it happened, in seconds since 1970: nothing for a finding whose times can't be read."""
    event = finding.code.partition("/")[0] in _EVENT_SOURCES
    texts = (finding.first_seen, finding.last_seen) if event else (finding.first_seen,)
    try:
        return tuple(parse_rfc3339(text) for text in dict.fromkeys(texts))
    except ValueError:
        return ()


def names_switch(finding: Finding) -> bool:
    """True where a node says that its NVLink switch is broken; milder SXids are about a job, or corrected."""
    grave = finding.verdict.severity >= Verdict.NO_NEW_WORK.severity
    return grave and finding.code.partition("/")[0] == _SWITCH_SOURCE


def is_echo(code: str) -> bool:
    """True for a channel torn down because something else failed: it names no cause."""
    return _xid(code) == _ECHO_XID


def is_programs(code: str) -> bool:
    """True for an Xid that a program causes by itself."""
    return _xid(code) in _PROGRAM_XIDS
