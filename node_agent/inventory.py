"""Which GPUs the node has: remembered over restarts and reboots, so that a lost one can be named. Pure.

A lost GPU often has no UUID to give: it is the one that is missing. A GPU that is no longer listed while the node has
fewer than before is missing; where as many others are listed, the board was swapped and is forgotten. A GPU that was
never listed is known by its place on the PCI bus.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from node_agent.probes.nvml_wire import GPUReading, Hang, PCIDevice, Snapshot
from node_agent.probes.report import address_id

_FABRIC_STATES: Final = {1: "not started", 2: "in progress", 3: "completed"}  # nvml.h, NVML_GPU_FABRIC_STATE_*
_DRIVERS: Final = ("nvidia", "")  # a GPU that another driver has, such as vfio-pci, is given away on purpose


class GPURecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a GPU."""

    index: int
    uuid: str
    serial: str = ""
    pci_address: str = ""
    model: str = ""
    links_best: int = 0
    """The most NVLinks that were ever active."""
    recovery_action: int | None = None
    """As last read; None where the driver has no such value."""
    links_active: int = 0
    links_total: int = 0
    fabric: str = ""
    """State and clique of the NVSwitch fabric in words, as last read."""
    ecc_uncorrected_life: int | None = None
    """Uncorrectable memory errors in the life of the board, as last read."""


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot brought together with the inventory: every GPU by the UUID that it has or must have."""

    records: dict[str, GPURecord]
    read: dict[str, GPUReading] = {}
    hung: dict[str, Hang] = {}
    missing: list[GPURecord] = []
    unlisted: list[PCIDevice] = []
    """GPUs on the PCI bus that NVML does not list and the inventory does not know."""
    risen: dict[str, int] = {}
    """By how much the count of a GPU's uncorrectable memory errors rose since it was last read, by UUID."""
    listed: int = 0


def match(snapshot: Snapshot, known: Sequence[GPURecord], expected_gpus: int) -> Matched:
    """Return the snapshot's GPUs by UUID, and the inventory as it is after it."""
    if not snapshot.read:
        return Matched(records={record.uuid: record for record in known})
    given_away = {device.address for device in snapshot.pci or () if device.driver not in _DRIVERS}
    before = {record.uuid: record for record in known if record.pci_address not in given_away}
    named = {gpu.uuid: gpu for gpu in snapshot.gpus if gpu.uuid}
    if named and before.keys().isdisjoint(named):
        before = {}  # another machine has this disk now: a virtual machine of another size, a new tray of boards
    absent = [record for uuid, record in before.items() if uuid not in named]
    unnamed = {gpu.index: gpu for gpu in snapshot.gpus if not gpu.uuid}
    nameless = sorted({*unnamed, *(hang.index for hang in snapshot.hangs)})
    strangers = _strangers(snapshot, [*named.values(), *before.values()])
    found, missing = _name(nameless, absent, strangers)
    listed = len(named) + len(nameless)
    swapped = listed >= max(expected_gpus, len(before))
    records = {uuid: _record(gpu, before.get(uuid)) for uuid, gpu in named.items()}
    records |= {record.uuid: record for record in absent if not (swapped and record in missing)}
    return Matched(
        records=records,
        read=named | {found[index]: gpu for index, gpu in unnamed.items()},
        hung={found[hang.index]: hang for hang in snapshot.hangs},
        missing=[] if swapped else missing,
        unlisted=[device for device in strangers if address_id(device.address) not in found.values()],
        risen={uuid: rise for uuid, gpu in named.items() if (rise := _risen(gpu, before.get(uuid)))},
        listed=listed,
    )


def _strangers(snapshot: Snapshot, known: Iterable[GPUReading | GPURecord]) -> list[PCIDevice]:
    """GPUs on the PCI bus that nothing else has told of."""
    addresses = {one.pci_address for one in known}
    return [device for device in snapshot.pci or () if device.driver in _DRIVERS and device.address not in addresses]


def _name(
    nameless: Sequence[int], absent: Sequence[GPURecord], strangers: Sequence[PCIDevice]
) -> tuple[dict[int, str], list[GPURecord]]:
    """Give each index without a UUID the absent GPU of that index, else any absent one, else a place on the bus.

    NVML lists GPUs in the order of the bus, so places are given in order, where there are as many as are sought.
    """
    left = {record.index: record for record in absent}
    names = {index: left.pop(index).uuid for index in nameless if index in left}
    for index in nameless:
        if index not in names and left:
            names[index] = left.pop(min(left)).uuid
    unknown = [index for index in nameless if index not in names]
    places = [address_id(device.address) for device in strangers]
    fitting = places if len(places) == len(unknown) else [f"index:{index}" for index in unknown]
    return names | dict(zip(unknown, fitting, strict=True)), list(left.values())


def _record(gpu: GPUReading, before: GPURecord | None) -> GPURecord:
    before = before or GPURecord(index=gpu.index, uuid=gpu.uuid)
    return GPURecord(
        index=gpu.index,
        uuid=gpu.uuid,
        serial=gpu.serial or before.serial,
        pci_address=gpu.pci_address or before.pci_address,
        model=gpu.model or before.model,
        links_best=max(gpu.links_active, before.links_best),
        recovery_action=gpu.recovery_action,
        links_active=gpu.links_active,
        links_total=gpu.links_active + len(gpu.links_inactive),
        fabric=_fabric(gpu),
        ecc_uncorrected_life=before.ecc_uncorrected_life
        if gpu.ecc_uncorrected_life is None
        else gpu.ecc_uncorrected_life,
    )


def _fabric(gpu: GPUReading) -> str:
    if not gpu.fabric_state:
        return ""
    state = _FABRIC_STATES.get(gpu.fabric_state, f"state {gpu.fabric_state}")
    if gpu.fabric_clique is None:
        return state
    cluster = gpu.fabric_cluster if gpu.fabric_cluster.strip("0") else ""  # all zeros: the fabric ends at the node
    return (
        f"{state}, clique {_dashed(cluster)}.{gpu.fabric_clique}" if cluster else f"{state}, clique {gpu.fabric_clique}"
    )


def _dashed(uuid: str) -> str:
    """Return 32 hexadecimal digits as GPU feature discovery writes them into nvidia.com/gpu.clique."""
    return "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))


def _risen(gpu: GPUReading, before: GPURecord | None) -> int:
    """Return the rise since the last look, which may have been before a reboot; a lower count is another InfoROM."""
    if before is None or before.ecc_uncorrected_life is None or gpu.ecc_uncorrected_life is None:
        return 0
    return max(0, gpu.ecc_uncorrected_life - before.ecc_uncorrected_life)
