"""What one reading of a probe brings: what happened, what holds now, and whether the probe could see."""

import msgspec

from node_agent.probes.nvml_wire import Snapshot
from outrider.api.gpunode import Diagnostic
from outrider.health.findings import Evidence


class KernelPosition(msgspec.Struct, frozen=True):
    """How far the kernel log has been read: boot and sequence number, -1 where nothing was new."""

    boot_id: str
    sequence: int = -1
    restarted: bool = False
    """The log began anew in the same boot: a file that was cut short."""


class Sighting(msgspec.Struct, frozen=True):
    """A line of the kernel log that says something: its sequence number and what it says."""

    sequence: int
    evidence: Evidence


class States(msgspec.Struct, frozen=True, kw_only=True):
    """All that is bad now among what a probe of states looks at."""

    bad: tuple[Evidence, ...] = ()
    readable: frozenset[str] = frozenset()
    """Owners (Evidence.owner) that were read well, "" for the node: what is bad no more may clear there."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One reading. ``blind`` says why the probe could not see; then the rest is what it saw nevertheless."""

    sightings: tuple[Sighting, ...] = ()
    """Things that happened once each, GPUs named by PCI address (``pci:00000000:19:00``) where that is all we know."""
    addresses: dict[str, str] = {}
    """Subject id of a PCI address to the UUID of its GPU or the name of its NIC, as far as the probe knows."""
    position: KernelPosition | None = None
    snapshot: Snapshot | None = None
    """All GPUs as NVML shows them now."""
    events: tuple[Evidence, ...] = ()
    """What NVML's events told; the kernel log may tell the same (node_agent/readings/nvml/events.py)."""
    states: States | None = None
    """What a probe of states saw, other than the NVML probe, whose snapshot is judged with the inventory."""
    holders: dict[str, str] | None = None
    """UUID of each GPU that the kubelet has given to a pod, to the UID of that pod: all of them; None: no news.

    A MIG device whose GPU is not known has its own UUID here, a device of a resource claim (DRA) whose UUID the kubelet
    does not tell is driver/pool/device.
    """
    diagnostic: Diagnostic | None = None
    """Where the active diagnostic stands that was asked for last; None: no news."""
    blind: str = ""

    @property
    def speaks(self) -> bool:
        """True where the report holds more than the fact that the probe works."""
        restarted = self.position is not None and self.position.restarted
        told = self.snapshot or self.events or self.states or self.diagnostic or self.holders is not None
        return bool(self.sightings or self.addresses or told or self.blind or restarted)


def address_id(address: str) -> str:
    """Return the subject id of a GPU that is known only by its PCI address."""
    return f"pci:{address}"
