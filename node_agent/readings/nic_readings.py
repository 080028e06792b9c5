"""RDMA network adapters as sysfs shows them, and how its texts are read. Pure.

Every text may be missing, garbage or new to us: what can't be read is None or kept as text, never an error and never
taken for a good value. Files: Documentation/ABI/stable/sysfs-class-infiniband of the Linux kernel.
"""

import re
from enum import IntEnum
from typing import Final

import msgspec

from node_agent.readings.rises import counter_of

_NUMBERED: Final = re.compile(r"(\d{1,3}): ?(.{1,40})", re.DOTALL)
_RATE: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec")
_TRANSFERS: Final = re.compile(r"(\d{1,4}(?:\.\d{1,3})?) GT/s")
_PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LANES_MAX: Final = 32  # PCIe knows no wider link; 63 and 255 stand for "unknown" in virtual machines


class PortState(IntEnum):
    """Logical state of a port (ib_port_state)."""

    NOP = 0
    DOWN = 1
    INIT = 2
    ARMED = 3
    ACTIVE = 4
    ACTIVE_DEFER = 5


class PortReading(msgspec.Struct, frozen=True, kw_only=True):
    """One port. Rates in Gbit/s."""

    number: int
    state: str = ""
    """As written, such as ``4: ACTIVE``."""
    phys_state: str = ""
    """As written, such as ``5: LinkUp``."""
    rate: float | None = None
    counters: dict[str, int] = {}
    carrier_losses: int | None = None
    """How often the paired network device lost its carrier; None where it has none."""
    problem: str = ""
    """Why the port could not be read; empty where it could."""

    @property
    def logical(self) -> PortState | None:
        """The state; None where the text is none that we know."""
        match = _NUMBERED.fullmatch(self.state)
        number = int(match[1]) if match else -1
        return PortState(number) if number in list(PortState) else None

    @property
    def readable(self) -> bool:
        """True where the port was read and is in a state that we know."""
        return not self.problem and self.logical is not None

    @property
    def up(self) -> bool:
        """True where the port carries data."""
        return not self.problem and self.logical in (PortState.ACTIVE, PortState.ACTIVE_DEFER)


class NICReading(msgspec.Struct, frozen=True, kw_only=True):
    """One RDMA device."""

    name: str
    pci_address: str
    """Domain, bus, device and function as sysfs names it: tells the device over renames."""
    board: str = ""
    """Board id of the firmware, else PCI vendor and device: equal for cards of one kind."""
    link_layer: str = ""
    numa_node: int | None = None
    netdevs: tuple[str, ...] = ()
    ports: tuple[PortReading, ...] = ()
    counters: dict[str, int] = {}
    """Counters of the device as a whole (EFA)."""
    lanes: int | None = None
    lanes_possible: int | None = None
    """PCIe lanes that both the card and its slot have."""
    transfers: float | None = None
    """PCIe speed in GT/s a lane."""
    transfers_possible: float | None = None
    verbs: bool = True
    """The kernel offers the device to programs (ib_uverbs)."""
    nodes_missing: tuple[str, ...] = ()
    """Device nodes that should be in /dev/infiniband and are not."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """All adapters of the node at one time."""

    nics: tuple[NICReading, ...]
    boot_id: str = ""
    default_netdevs: frozenset[str] = frozenset()
    """Network devices that carry the default route, those below a bond, bridge or VLAN too."""


def name_of(numbered: str) -> str:
    """Return the word of a text such as ``1: DOWN``; the text itself where it has another form."""
    match = _NUMBERED.fullmatch(numbered)
    return match[2] if match else numbered[:40]


def rate_of(text: str) -> float | None:
    """Return Gbit/s from a text such as ``400 Gb/sec (4X NDR)``; None where it tells none."""
    match = _RATE.match(text)
    return float(match[1]) or None if match else None


def lanes_of(text: str) -> int | None:
    """Return a PCIe width; None where the kernel does not know it."""
    lanes = counter_of(text)
    return lanes if lanes is not None and 0 < lanes <= _LANES_MAX else None


def transfers_of(text: str) -> float | None:
    """Return GT/s from a text such as ``32.0 GT/s PCIe``; None where the kernel does not know it."""
    match = _TRANSFERS.match(text)
    return float(match[1]) or None if match else None


def node_of(text: str) -> int | None:
    """Return a NUMA node; None where the device has none (-1)."""
    return counter_of(text)


def is_pci_address(text: str) -> bool:
    """True for an address such as 0000:b3:00.1: sub-functions and software devices sit on no PCI device."""
    return _PCI_ADDRESS.fullmatch(text) is not None


def subject_of(pci_address: str) -> str:
    """Return how the kernel log's findings call the device of a PCI address: with eight digits of the domain."""
    domain, _, rest = pci_address.partition(":")
    return f"pci:{domain:0>8}:{rest}"


def default_routes(route4: str, route6: str = "") -> frozenset[str]:
    """Return the network devices of the default routes in the texts of /proc/net/route and /proc/net/ipv6_route."""
    rows4 = (line.split() for line in route4.splitlines())
    rows6 = (line.split() for line in route6.splitlines())
    found = {row[0] for row in rows4 if len(row) >= 8 and row[1] == row[7] == "00000000"}
    return frozenset(found | {row[9] for row in rows6 if len(row) >= 10 and row[0] == "0" * 32 and row[1] == "00"})
