"""Shared causes: what can bring trouble to many nodes at once, and the codes that are witnesses of it. Pure.

A code is a witness of one cause at most; most codes are of none, since they tell of one node only.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from outrider.api.gpunode import Finding, Verdict
from outrider.api.times import parse_rfc3339
from outrider.health.catalogue import RECOVERY_PREFIX, XID_PREFIX
from outrider.health.families import CLEANUP, NVLINK, PROGRAM, family_of, plain_code

SILENT_AGENT: Final = "monitor/silent"  # in no catalogue: the agent itself does not report


class SharedCause(StrEnum):
    """What many nodes may have in common."""

    FABRIC = "fabric"  # NVLink, NVSwitch
    NETWORK = "network"  # NICs and the switches behind them
    POWER = "power"  # power, cooling, the PCIe bus: GPUs gone
    SILENCE = "silence"  # nothing is known: never a reason to touch hardware


_FAMILIES: Final[Mapping[str, SharedCause]] = {
    NVLINK: SharedCause.FABRIC,
    "nic": SharedCause.NETWORK,
    "cooling": SharedCause.POWER,
    "power": SharedCause.POWER,
}
# Codes whose family says another thing, or nothing.
_CODES: Final[Mapping[str, SharedCause | None]] = {
    # A NIC's own business, or its node's: no switch can be the cause.
    **dict.fromkeys(("nic/unreadable", "nic/device-node", "nic/management-node", "nic/verbs-missing"), None),
    # A job that ends in the middle of its transfers brings these on all its nodes.
    **dict.fromkeys(("nic/receiver-not-ready", "nic/efa-remote-errors"), None),
    **dict.fromkeys(("gpu/lost", "gpu/missing", "gpu/unlisted", "gpu/count", "xid/79", "xid/167"), SharedCause.POWER),
    **dict.fromkeys(("kernel/off-bus", "kernel/pcie-link-down", "kernel/pcie-lost"), SharedCause.POWER),
    **dict.fromkeys(("kernel/cpu-hot", "clocks/power-brake"), SharedCause.POWER),
    **dict.fromkeys(("monitor/blind", "gpu/unreadable", SILENT_AGENT), SharedCause.SILENCE),
    **dict.fromkeys(("nvml/init", "nvml/no-driver", "nvml/no-access", "nvml/no-gpu"), SharedCause.SILENCE),
    "nvml/mismatch": SharedCause.SILENCE,
}
_NIC_DRIVER: Final = "kernel/nic-"  # what the driver says of its own card
_ADVICE: Final = "xid/154"
_RESET_WANTED: Final = frozenset({"gpu/reset-required", "kernel/reset-required"})
_EVENT_SOURCES: Final = frozenset({"xid", "sxid", "kernel"})  # their last sighting is an event, a state's is a reading
_SWITCH_SOURCE: Final = "sxid"


def shared_cause(code: str) -> SharedCause | None:
    """Return the cause that a code is a witness of, None for one that says nothing of shared parts."""
    plain = plain_code(code)
    if plain in _CODES:
        return _CODES[plain]
    return None if code.startswith(_NIC_DRIVER) else _FAMILIES.get(family_of(code))


def is_advice(code: str) -> bool:
    """True for what the driver wants done (Xid 154, NVML field 230): it names no cause."""
    return plain_code(code) == _ADVICE or code.startswith(RECOVERY_PREFIX) or code in _RESET_WANTED


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
    return plain_code(code) == CLEANUP


def is_programs(code: str) -> bool:
    """True for an Xid that a program causes by itself (Xid catalogue)."""
    return code.startswith(XID_PREFIX) and family_of(code) == PROGRAM
