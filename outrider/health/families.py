"""Families of codes: several codes and probes tell of the same broken part. Pure.

All codes of one family on one GPU (NIC, node) tell of the same part. Codes that follow are not a fault of their own:
the driver's advice, the clean-up after a fault (Xid 45) and a GPU that no longer answers belong to what they follow.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from outrider.api.gpunode import SubjectKind
from outrider.health.catalogue import RECOVERY_PREFIX, XID_PREFIX, XID_RECOVERY_PREFIX
from outrider.health.findings import Evidence

FOLLOWING: Final = "follows"  # name of the family of codes that follow
CLEANUP: Final = "xid/45"
NVLINK: Final = "nvlink"
PROGRAM: Final = "program"
_HUNG: Final = "monitor/blind"  # of one GPU: its calls do not return

# Sources: memory-error guide (48 with 63, 64, 94, 95; remaps), Xid catalogue (74, 136, 144-150, 155; 171 and 172 detail
# 48), NVML 15 with Xid 79 (both "fallen off the bus") and the PCIe errors that go with it.
_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": tuple(f"xid/{number}" for number in (48, 63, 64, 94, 95, 140, 160, 161, 171, 172)),
    NVLINK: ("xid/74", *(f"xid/{number}" for number in range(144, 151)), "xid/136", "xid/155"),
    "bus": ("xid/79", "xid/167", "gpu/lost", "gpu/missing", "gpu/unavailable", "kernel/off-bus"),
    "gsp": ("xid/119", "xid/120", "kernel/gsp-timeout"),
    "start": ("xid/143", "gpu/reset-required", "kernel/reset-required", "kernel/init-failed"),
    "driver": (
        "kernel/driver-mismatch",
        "kernel/driver-start",
        "nvml/mismatch",
        "nvml/no-driver",
        "nvml/init",
        "driver/init-failed",
    ),
    PROGRAM: ("xid/13", "xid/31", "xid/32", "xid/43", "xid/68", "xid/69", "xid/137", "gpu/suspect"),
    "repeat": ("gpu/repeat-offender", "gpu/lemon"),
    "power": ("xid/54", "gpu/power-cable"),
    "c2c": ("xid/121", "xid/173", "c2c/inactive"),
    "host-memory": ("host/memory-corrected", "host/memory-uncorrected"),
    "disk": ("kernel/io-error", "host/read-only", "host/disk-unreadable"),
}
_FAMILY_OF: Final = {code: name for name, codes in _FAMILIES.items() for code in codes}
_PREFIXES: Final = {
    "remap/": "memory",
    "ecc/": "memory",
    "pages/": "memory",
    "memory/": "memory",
    "dcgm/remap": "memory",
    "dcgm/ecc": "memory",
    "dcgm/sram": "memory",
    "dcgm/nvlink": NVLINK,
    "dcgm/pcie": "bus",
    "nvlink/": NVLINK,
    "fabric/": NVLINK,
    "sxid/": NVLINK,
    "kernel/aer": "bus",
    "kernel/pcie": "bus",
    "pcie/": "bus",
    "clocks/hw-": "cooling",
    "thermal/": "cooling",
    "nic/pcie": "nic-bus",
    "nic/": "nic",
    "kernel/nic-": "nic",
    "kernel/fs-": "disk",
    "kernel/nvme-": "disk",
    "kernel/mce": "host-memory",
    "kernel/memory-": "host-memory",
}
_FOLLOWERS: Final = (RECOVERY_PREFIX, XID_RECOVERY_PREFIX, "gpu/unreadable")  # advice; a GPU that answers no more


def family(evidence: Evidence) -> str:
    """Return the name of what the evidence tells of: codes that are not listed are families of their own."""
    if evidence.code == _HUNG and evidence.subject is SubjectKind.GPU:
        return FOLLOWING
    return family_of(evidence.code)


@lru_cache(maxsize=1024)
def family_of(code: str) -> str:
    """Return the name of the family of a code, whatever its evidence is about."""
    if code == CLEANUP or code.startswith(_FOLLOWERS):
        return FOLLOWING
    plain = plain_code(code)
    if plain in _FAMILY_OF:
        return _FAMILY_OF[plain]
    return next((name for prefix, name in _PREFIXES.items() if code.startswith(prefix)), plain)


def plain_code(code: str) -> str:
    """Return the code of an Xid without the detail that its line gave it: xid/74 of xid/74.hardware."""
    return code.partition(".")[0] if code.startswith(XID_PREFIX) else code
