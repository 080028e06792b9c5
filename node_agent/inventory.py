"""Which GPUs the node has: remembered over restarts and reboots, so that a lost one can be named. Pure.

A lost GPU often has no UUID to give: it is the one that is missing. A GPU that is no longer listed while the node has
fewer than before is missing; where as many others are listed, the board was swapped and is forgotten.
"""

from collections.abc import Sequence

import msgspec

from node_agent.probes.nvml_wire import GPUReading, Hang, Snapshot


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


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot brought together with the inventory: every GPU by the UUID that it has or must have."""

    records: dict[str, GPURecord]
    read: dict[str, GPUReading] = {}
    hung: dict[str, Hang] = {}
    missing: list[GPURecord] = []
    listed: int = 0


def match(snapshot: Snapshot, known: Sequence[GPURecord], expected_gpus: int) -> Matched:
    """Return the snapshot's GPUs by UUID, and the inventory as it is after it."""
    before = {record.uuid: record for record in known}
    if snapshot.failed is not None:
        return Matched(records=before)
    named = {gpu.uuid: gpu for gpu in snapshot.gpus if gpu.uuid}
    absent = [record for uuid, record in before.items() if uuid not in named]
    unnamed = {gpu.index: gpu for gpu in snapshot.gpus if not gpu.uuid}
    nameless = sorted({*unnamed, *(hang.index for hang in snapshot.hangs)})
    found, missing = _name(nameless, absent)
    listed = len(named) + len(nameless)
    swapped = listed >= max(expected_gpus, len(before))
    records = {uuid: _record(gpu, before.get(uuid)) for uuid, gpu in named.items()}
    records |= {record.uuid: record for record in absent if not (swapped and record in missing)}
    return Matched(
        records=records,
        read=named | {found[index]: gpu for index, gpu in unnamed.items()},
        hung={found[hang.index]: hang for hang in snapshot.hangs},
        missing=[] if swapped else missing,
        listed=listed,
    )


def _name(nameless: Sequence[int], absent: Sequence[GPURecord]) -> tuple[dict[int, str], list[GPURecord]]:
    """Give each index without a UUID the absent GPU of that index, else any absent one, else a name of its own."""
    left = {record.index: record for record in absent}
    names = {index: left.pop(index).uuid for index in nameless if index in left}
    for index in nameless:
        if index not in names:
            names[index] = left.pop(min(left)).uuid if left else f"index:{index}"
    return names, list(left.values())


def _record(gpu: GPUReading, before: GPURecord | None) -> GPURecord:
    best = max(gpu.links_active, before.links_best if before else 0)
    return GPURecord(
        index=gpu.index,
        uuid=gpu.uuid,
        serial=gpu.serial or (before.serial if before else ""),
        pci_address=gpu.pci_address or (before.pci_address if before else ""),
        model=gpu.model or (before.model if before else ""),
        links_best=best,
    )
