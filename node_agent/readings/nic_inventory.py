"""Which RDMA adapters the node has and which of them carry training: remembered over restarts and reboots. Pure.

Devices are told apart by PCI address, since names are given anew at each boot. Which devices are for training:

1. a device whose network device carries the default route is for management, and stays so while there is none;
2. the training devices are the largest group of one link layer and one board; of groups of equal size the one with the
   faster ports; of equally fast ones all;
3. in a group of four or more, the only device that is alone on its NUMA node, while all others have company there, is
   for management.

Devices of other groups are not judged: their ports may never have been cabled.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from node_agent.readings.nic_readings import Look, NICReading, PortReading

FLAP_WINDOW_SECONDS: Final = 12 * 3600.0  # gpud: three flaps within twelve hours
_FLAPS_KEPT: Final = 16
_DROPPED_SECONDS: Final = 3600.0  # longer than any dwell
_BOND: Final = "bond"  # mlx5_bond_0: two ports of a card as one device
_GROUP_FOR_NUMA: Final = 4


class PortRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a port."""

    was_up: bool = False
    best_rate: float = 0.0
    """Gbit/s, the most in this boot: after a reboot the siblings tell what is normal."""
    flaps: tuple[float, ...] = ()
    """When the link came back after it was lost, seconds since 1970."""


class NICRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a device."""

    name: str
    pci_address: str
    board: str = ""
    link_layer: str = ""
    numa_node: int | None = None
    management: bool = False
    ports: dict[int, PortRecord] = {}

    @property
    def group(self) -> tuple[str, str]:
        """What devices for the same purpose have in common."""
        return (self.link_layer, self.board)

    @property
    def rate(self) -> float:
        """Gbit/s of its fastest port."""
        return max((port.best_rate for port in self.ports.values()), default=0.0)


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept on disk."""

    boot_id: str = ""
    nics: list[NICRecord] = []
    judged: list[str] = []
    """What the devices for training were called at the last look."""
    dropped: dict[str, float] = {}
    """Devices judged no longer, since they were replaced or serve something else, and since when (seconds since 1970):
    for an hour they count as read well, so that what was known against them clears."""

    @property
    def by_address(self) -> dict[str, NICRecord]:
        """The devices by PCI address."""
        return {record.pci_address: record for record in self.nics}


def updated(known: Inventory, look: Look) -> Inventory:
    """Return the inventory after a look.

    A device that is absent stays in it, unless as many are there as before: then it was replaced; or another function
    of its card has become a bond: then it is part of that.
    """
    before = known.by_address
    rebooted = bool(look.boot_id) and look.boot_id != known.boot_id
    here = {nic.pci_address: _record(nic, before.get(nic.pci_address), look, rebooted=rebooted) for nic in look.nics}
    bonded = {_card(nic.pci_address) for nic in look.nics if _BOND in nic.name}
    absent = [record for address, record in before.items() if address not in here and _card(address) not in bonded]
    replaced = len(here) >= len(before)
    nics = [*here.values(), *(() if replaced else absent)]
    return msgspec.structs.replace(
        known, boot_id=look.boot_id or known.boot_id, nics=sorted(nics, key=lambda record: record.pci_address)
    )


def judging(known: Inventory, names: Collection[str], now: float) -> Inventory:
    """Return the inventory with the names of the devices that are judged now."""
    still = {name: min(since, now) for name, since in known.dropped.items() if name not in names}
    dropped = still | {name: now for name in known.judged if name not in names}
    return msgspec.structs.replace(
        known,
        judged=sorted(names),
        dropped={name: since for name, since in dropped.items() if now - since < _DROPPED_SECONDS},
    )


def _card(pci_address: str) -> str:
    return pci_address.rpartition(".")[0]


def with_flaps(record: NICRecord, port: int, count: int, now: float) -> NICRecord:
    """Return the record with ``count`` flaps of a port added, without those that are too old to count."""
    kept = record.ports[port]
    recent = recent_flaps(kept.flaps, now)
    flaps = (*recent, *[now] * min(count, _FLAPS_KEPT))[-_FLAPS_KEPT:]
    if flaps == kept.flaps:
        return record
    return msgspec.structs.replace(record, ports=record.ports | {port: msgspec.structs.replace(kept, flaps=flaps)})


def recent_flaps(flaps: Iterable[float], now: float) -> tuple[float, ...]:
    """Return those within the window; a time ahead of the clock, which was set back since, counts as now."""
    return tuple(moment for moment in (min(flap, now) for flap in flaps) if now - moment < FLAP_WINDOW_SECONDS)


def training(records: Collection[NICRecord]) -> set[str]:
    """Return the PCI addresses of the devices for training, by the rules at the head of this file."""
    groups: dict[tuple[str, str], list[NICRecord]] = {}
    for record in records:
        if not record.management:
            groups.setdefault(record.group, []).append(record)
    if not groups:
        return set()
    best = max(_standing(group) for group in groups.values())
    chosen = [record for group in groups.values() if _standing(group) == best for record in _without_loner(group)]
    return {record.pci_address for record in chosen}


def _standing(group: Collection[NICRecord]) -> tuple[int, float]:
    return (len(group), max(record.rate for record in group))


def _without_loner(group: Collection[NICRecord]) -> list[NICRecord]:
    company = Counter(record.numa_node for record in group)
    loners = [record for record in group if company[record.numa_node] == 1]
    if len(group) < _GROUP_FOR_NUMA or len(loners) != 1:
        return list(group)
    return [record for record in group if record is not loners[0]]


def _record(nic: NICReading, before: NICRecord | None, look: Look, *, rebooted: bool) -> NICRecord:
    ports = dict(before.ports) if before else {}
    ports |= {port.number: _port(port, ports.get(port.number), rebooted=rebooted) for port in nic.ports}
    was_management = before is not None and before.management
    return NICRecord(
        name=nic.name,
        pci_address=nic.pci_address,
        board=nic.board or (before.board if before else ""),
        link_layer=nic.link_layer or (before.link_layer if before else ""),
        numa_node=nic.numa_node if nic.numa_node is not None or before is None else before.numa_node,
        management=bool(look.default_netdevs & {*nic.netdevs}) if look.default_netdevs else was_management,
        ports=ports,
    )


def _port(port: PortReading, before: PortRecord | None, *, rebooted: bool) -> PortRecord:
    record = before or PortRecord()
    best = 0.0 if rebooted else record.best_rate
    rate = port.rate if port.up and port.rate is not None else 0.0  # a port that is down tells the lowest rate there is
    return msgspec.structs.replace(record, was_up=record.was_up or port.up, best_rate=max(best, rate))


def subject_names(records: Mapping[str, NICRecord], here: Collection[str]) -> dict[str, str]:
    """Return what people call each device, by PCI address.

    Its name; its address where it is absent and the name has gone to another device.
    """
    taken = {records[address].name for address in here if address in records}
    return {
        address: record.name if address in here or record.name not in taken else address
        for address, record in records.items()
    }
