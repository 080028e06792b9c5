"""Names of devices as kernel lines spell them, and the subjects they stand for."""

import re
from typing import Final

BDF: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"
"""Domain, bus and device of a PCI address, without the function."""
FULL_BDF: Final = BDF + r"\.[0-7]"
UUID: Final = r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_ADDRESS: Final = re.compile(rf"(?<![0-9a-fA-F]){BDF}")
_SHORT: Final = re.compile(  # old drivers and X: domain and bus alone, or bus and device of domain 0
    r"(?:PCI:)?(?:(?P<domain>[0-9a-fA-F]{4,8}):(?P<bus>[0-9a-fA-F]{2})"
    r"|(?P<bare_bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})(?:\.[0-7])?)(?![0-9a-fA-F:])"
)
_INSTANCE: Final = re.compile(r"\bGPU-I:([0-9a-fA-F]{1,2})(?![0-9a-fA-F])(?: GPU-CI:([0-9a-fA-F]{1,2})\b)?")
_UUID: Final = re.compile(UUID)
_UUID_LENGTH: Final = 40
ADDRESS_PREFIX: Final = "pci:"


def canonical(address: str) -> str:
    """Return a PCI address as NVML writes it, without function: 00000000:19:00."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain:0>8}:{rest.split('.')[0]}"


def address_id(address: str) -> str:
    """Return the subject id of a device that is known only by its PCI address."""
    return f"{ADDRESS_PREFIX}{address}"


def function_id(address: str) -> str:
    """Return the subject id of one function of a PCI device: pci:00000000:b3:00.1."""
    head, _, function = address.lower().partition(".")
    return f"{address_id(canonical(head))}.{function}"


def gpu_of(device: str) -> str:
    """Return the subject id of the GPU that the brackets of an Xid name: its UUID, else its address, else nothing."""
    if uuid := _UUID.search(device):
        return uuid[0][:4] + uuid[0][4:_UUID_LENGTH].lower()
    if found := _ADDRESS.search(device):
        return address_id(canonical(found[0]))
    short = _SHORT.match(device.strip())
    if short is None:
        return ""
    domain, bus, device_number = short["domain"] or "0", short["bus"] or short["bare_bus"], short["device"] or "00"
    return address_id(canonical(f"{domain}:{bus}:{device_number}"))


def instance_of(device: str) -> str:
    """Return the MIG instance that the brackets of an Xid name, such as "MIG GI 5 CI 0"; nothing where none."""
    found = _INSTANCE.search(device)
    if found is None:
        return ""
    compute = f" CI {int(found[2], 16)}" if found[2] else ""
    return f"MIG GI {int(found[1], 16)}{compute}"
