"""The NIC probe: RDMA devices as sysfs shows them, some 15 small files for each at a look.

What does not change at run time (board, NUMA node, slot, which counters there are) is read once a minute, or when a
device comes anew. Reading counters asks the adapter's firmware, which can hang: so all of it happens aside.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from node_agent.config import Config
from node_agent.kept_file import KeptFile
from node_agent.probes.aside import Aside
from node_agent.probes.files import names_in, read_or_empty, read_small
from node_agent.probes.registry import NoData, probe
from node_agent.probes.report import Report
from node_agent.readings.nic_inventory import Inventory
from node_agent.readings.nic_judging import COUNTERS, NICWatch
from node_agent.readings.nic_readings import (
    Look,
    NICReading,
    PortReading,
    default_routes,
    is_pci_address,
    lanes_of,
    node_of,
    rate_of,
    subject_of,
    transfers_of,
)
from node_agent.readings.rises import Steps, counter_of

_FIXED_SECONDS: Final = 60.0  # how long what does not change is taken for granted
_TIMEOUT_SECONDS: Final = 30.0
_LAYERS_MAX: Final = 4  # a VLAN on a bridge on a bond on the device
_ACTIVE: Final = "4: ACTIVE"  # then nothing asks for the physical state, and a file less is read
_KEPT: Final = "nics.json"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives a restart."""

    inventory: Inventory = Inventory()
    rises: dict[str, Steps] = {}


class _PortFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where a port is read."""

    number: int
    folder: str
    counters: dict[str, str]
    """Path by name."""
    carrier: tuple[str, int] | None
    """Counter of the network device, and how much of it makes one loss of the carrier."""


class _Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """What is not read at each look."""

    reading: NICReading
    device: str
    ports: tuple[_PortFiles, ...]
    counters: dict[str, str]
    nodes: frozenset[str]


class SysfsNICs:
    """Reads all RDMA devices; remembers what does not change."""

    def __init__(self, sys_path: str, proc_path: str, dev_path: str) -> None:
        self._sys = f"{sys_path}/class"
        self._routes = (f"{proc_path}/1/net/route", f"{proc_path}/1/net/ipv6_route")
        self._nodes = f"{dev_path}/infiniband"
        self._links: dict[str, str] = {}
        self._until = float("-inf")
        self._fixed: tuple[_Fixed, ...] = ()

    def read(self, monotonic: float) -> Look:
        """Return all devices that are whole PCI functions, no virtual ones. Raises OSError where there is no sysfs."""
        os.stat(self._sys)
        links = {name: _link(f"{self._sys}/infiniband/{name}") for name in names_in(f"{self._sys}/infiniband")}
        if links != self._links or monotonic >= self._until:
            nodes = self._char_devices()
            self._fixed = _one_each(fixed for fixed in (self._look_up(name, nodes) for name in links) if fixed)
            self._links, self._until = links, monotonic + _FIXED_SECONDS
        there = frozenset(names_in(self._nodes))
        return Look(nics=tuple(_nic(fixed, there) for fixed in self._fixed), default_netdevs=self._default_netdevs())

    def _char_devices(self) -> dict[str, frozenset[str]]:
        """Return the device nodes that belong to each RDMA device."""
        nodes: dict[str, set[str]] = {}
        for kind in ("infiniband_verbs", "infiniband_mad"):
            for node in names_in(f"{self._sys}/{kind}"):
                if node.startswith(("uverbs", "umad")):
                    nodes.setdefault(read_small(f"{self._sys}/{kind}/{node}/ibdev"), set()).add(node)
        return {name: frozenset(found) for name, found in nodes.items()}

    def _look_up(self, name: str, nodes: Mapping[str, frozenset[str]]) -> _Fixed | None:
        root = f"{self._sys}/infiniband/{name}"
        device = os.path.realpath(f"{root}/device")
        if not is_pci_address(os.path.basename(device)) or os.path.exists(f"{device}/physfn"):
            return None
        netdevs = names_in(f"{device}/net")
        numbers = sorted(int(port) for port in names_in(f"{root}/ports") if port.isascii() and port.isdigit())
        ports = tuple(_port_files(root, number, device, netdevs) for number in numbers)
        own = nodes.get(name, frozenset())
        return _Fixed(
            reading=_described(
                name, root, device, ports, netdevs, verbs=any(node.startswith("uverbs") for node in own)
            ),
            device=device,
            ports=ports,
            counters=_counter_files(f"{root}/hw_counters"),
            nodes=own,
        )

    def _default_netdevs(self) -> frozenset[str]:
        found = default_routes(*(read_or_empty(path) for path in self._routes)) - {"lo"}
        layer = found
        for _ in range(_LAYERS_MAX):
            layer = frozenset(
                entry.removeprefix("lower_")
                for netdev in layer
                for entry in names_in(f"{self._sys}/net/{netdev}")
                if entry.startswith("lower_")
            )
            found |= layer
        return found


def _one_each(found: Iterable[_Fixed]) -> tuple[_Fixed, ...]:
    """Leave out further devices of one PCI function: parts of the first, by name."""
    first: dict[str, _Fixed] = {}
    for fixed in found:
        first.setdefault(fixed.device, fixed)
    return tuple(first.values())


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _described(
    name: str, root: str, device: str, ports: tuple[_PortFiles, ...], netdevs: list[str], *, verbs: bool
) -> NICReading:
    vendor, model = (read_or_empty(f"{device}/{name}") for name in ("vendor", "device"))
    slot = os.path.dirname(device)
    lanes = [lanes_of(read_or_empty(f"{place}/max_link_width")) for place in (device, slot)]
    transfers = [transfers_of(read_or_empty(f"{place}/max_link_speed")) for place in (device, slot)]
    return NICReading(
        name=name,
        pci_address=os.path.basename(device),
        board=read_or_empty(f"{root}/board_id") or f"{vendor}:{model}",
        link_layer=read_or_empty(f"{ports[0].folder}/link_layer") if ports else "",
        numa_node=node_of(read_or_empty(f"{device}/numa_node")),
        netdevs=tuple(netdevs),
        lanes_possible=min((value for value in lanes if value is not None), default=None),
        transfers_possible=min((value for value in transfers if value is not None), default=None),
        verbs=verbs,
    )


def _port_files(root: str, number: int, device: str, netdevs: list[str]) -> _PortFiles:
    folder = f"{root}/ports/{number}"
    paired = [netdev for netdev in netdevs if read_or_empty(f"{device}/net/{netdev}/dev_port") in ("", str(number - 1))]
    counters = _counter_files(f"{folder}/counters") | _counter_files(f"{folder}/hw_counters")
    return _PortFiles(
        number=number,
        folder=folder,
        counters=counters,
        carrier=_carrier(f"{device}/net/{paired[0]}") if paired else None,
    )


def _carrier(netdev: str) -> tuple[str, int]:
    """Older kernels count changes only: a loss and a return are two."""
    downs = f"{netdev}/carrier_down_count"
    return (downs, 1) if os.path.exists(downs) else (f"{netdev}/carrier_changes", 2)


def _counter_files(folder: str) -> dict[str, str]:
    return {name: f"{folder}/{name}" for name in names_in(folder) if name in COUNTERS}


def _nic(fixed: _Fixed, there: frozenset[str]) -> NICReading:
    missing = tuple(sorted(fixed.nodes - there)) if there else ()
    return msgspec.structs.replace(
        fixed.reading,
        ports=tuple(port for port in map(_port, fixed.ports) if port is not None),
        counters=_counters(fixed.counters),
        lanes=lanes_of(read_or_empty(f"{fixed.device}/current_link_width")),
        transfers=transfers_of(read_or_empty(f"{fixed.device}/current_link_speed")),
        nodes_missing=missing,
    )


def _port(files: _PortFiles) -> PortReading | None:
    try:
        state = read_small(f"{files.folder}/state")
        if not state and not os.path.isdir(files.folder):
            return None
        return PortReading(
            number=files.number,
            state=state,
            phys_state="" if state == _ACTIVE else read_small(f"{files.folder}/phys_state"),
            rate=rate_of(read_small(f"{files.folder}/rate")),
            counters=_counters(files.counters),
            carrier_losses=_losses(files.carrier),
        )
    except OSError as error:
        return PortReading(number=files.number, problem=f"can't be read: {error.strerror or error}")


def _losses(carrier: tuple[str, int] | None) -> int | None:
    value = counter_of(read_or_empty(carrier[0])) if carrier else None
    return value // carrier[1] if carrier and value is not None else None


def _counters(files: Mapping[str, str]) -> dict[str, int]:
    """Leave out what is no number: older firmware answers "N/A"."""
    values = {name: counter_of(read_or_empty(path)) for name, path in files.items()}
    return {name: value for name, value in values.items() if value is not None}


class NICProbe:
    """Looks at all RDMA devices and remembers which there were."""

    wake: asyncio.Event | None = None
    timeout_seconds = _TIMEOUT_SECONDS

    def __init__(self, config: Config) -> None:
        self.period_seconds = config.nic_period_seconds
        self._sysfs = SysfsNICs(config.sys_path, config.proc_path, config.dev_path)
        self._watch = NICWatch(config.ignored_nics, config.expected_nics)
        self._expected = config.expected_nics
        self._boot_id_path = config.boot_id_path
        self._file = KeptFile(Path(config.state_dir) / _KEPT, Kept)
        self._inventory = Inventory()
        self._started = False
        self._aside = Aside[Report]()

    async def read(self) -> Report:
        """Return all that is bad. Raises NoData where there never was an RDMA device, OSError without sysfs."""
        return await self._aside.run(self._look)

    def _look(self) -> Report:
        monotonic, boot_id = time.monotonic(), read_or_empty(self._boot_id_path)
        if not self._started:
            self._take_up(boot_id)
        look = msgspec.structs.replace(self._sysfs.read(monotonic), boot_id=boot_id)
        if not (look.nics or self._inventory.nics or self._expected):
            raise NoData("no RDMA devices")
        self._inventory, states = self._watch.judge(self._inventory, look, time.time(), monotonic)
        urgent = (self._inventory, frozenset(evidence.key for evidence in states.bad))
        self._file.keep(Kept(inventory=self._inventory, rises=self._watch.rises), urgent, monotonic)
        return Report(states=states, addresses={subject_of(nic.pci_address): nic.name for nic in look.nics})

    def _take_up(self, boot_id: str) -> None:
        kept = self._file.read() or Kept()
        self._inventory, self._started = kept.inventory, True
        if boot_id == kept.inventory.boot_id:
            self._watch.restore(kept.rises)

    async def close(self) -> None:
        """Nothing is held open."""


@probe("nics")
def _build(config: Config) -> NICProbe:
    return NICProbe(config)
