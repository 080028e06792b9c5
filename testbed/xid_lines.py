"""Kernel-log lines of the NVIDIA driver, in the words that the driver prints them."""

RECOVERY_ACTIONS = (
    "None",
    "GPU Reset Required",
    "Node Reboot Required",
    "Drain P2P",
    "Drain and Reset",
    "Recover IMEX Domain",
    "Bus Reset",
    "System Reboot",
)
"""Texts of the driver's recovery actions by NVML's number."""

_DETAILS = {
    13: "Graphics Exception: ESR 0x504730=0x20009 0x504734=0x20 0x504728=0x4c1eb72 0x50472c=0x174",
    31: "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1d_20000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "Ch 00000010",
    45: "Ch 00000010",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 6, "
    "subpartition 0.",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "Row Remapper: Failed to remap a row.",
    74: "NVLink: fatal error detected on link 3(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    92: "High single-bit ECC error rate",
    94: "Contained: CE User Channel (0x9). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    109: "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x3c046",
    119: "Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) "
    "(0x20802a02 0x8).",
    120: "GSP task timeout @ pc:0x4bca9a4, task: 1",
    140: "An uncorrectable ECC error detected (possible firmware handling failure) DRAM:0, LTC:1, MMU:0, PCIE:0",
    145: "RLW_REMAP Nonfatal XC0 i0 Link 05 (0x00000006 0x80000000 0x00000000 0x00000000 0x00000000 0x00000000)",
}


def pci_place(bus_id: str) -> str:
    """Place of a GPU as the driver writes it in an Xid line, from NVML's bus id.

    >>> pci_place("00000000:3B:00.0")
    '0000:3b:00'
    """
    domain, bus, rest = bus_id.lower().split(":")
    return f"{domain[-4:]}:{bus}:{rest.split('.')[0]}"


def xid_line(bus_id: str, xid: int, detail: str | None = None) -> str:
    """The driver's line for an Xid of the GPU at a bus id; a code without known words has only its number."""
    words = _DETAILS.get(xid) if detail is None else detail
    head = f"NVRM: Xid (PCI:{pci_place(bus_id)}): {xid}, pid='<unknown>', name=<unknown>"
    return f"{head}, {words}" if words else head


def off_bus_lines(bus_id: str, serial: str) -> list[str]:
    """What the driver prints when a GPU stops answering on PCIe."""
    device = f"{pci_place(bus_id)}.0"
    return [
        xid_line(bus_id, 79),
        f"NVRM: GPU {device}: GPU has fallen off the bus.",
        f"NVRM: GPU {device}: GPU serial number is {serial}.",
    ]


def recovery_line(bus_id: str, before: int, after: int) -> str:
    """The driver's Xid 154: it wants another recovery action than before."""
    old, new = RECOVERY_ACTIONS[before], RECOVERY_ACTIONS[after]
    return xid_line(bus_id, 154, f"GPU recovery action changed from {before:#x} ({old}) to {after:#x} ({new})")
