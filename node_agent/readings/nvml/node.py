"""A whole snapshot as evidence. Pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from node_agent.inventory import GPURecord, Matched
from node_agent.probes.nvml_wire import Failed, GPUReading, Hang, PCIDevice, Snapshot, Trend
from node_agent.probes.report import address_id
from node_agent.readings.nvml import fabric, links, memory, modes, pcie, presence, speed
from node_agent.readings.nvml.look import COUNTERS_SOURCE, SOURCE, Look
from outrider.api.gpunode import SubjectKind
from outrider.health.findings import Evidence, seen

RELEASED: Final = "nvml/released"
# What a failed start of NVML says (nvmlReturn_t); anything else is nvml/init.
_FAILURES: Final = {
    4: "nvml/no-access",
    17: "nvml/no-access",
    9: "nvml/no-driver",
    12: "nvml/no-driver",
    18: "nvml/mismatch",
    28: "nvml/no-gpu",
}
BLIND_CODES: Final = frozenset({"nvml/init", RELEASED, *_FAILURES.values()})
"""Findings of the node that mean: NVML shows nothing at present."""
_NO_EVENTS: Final = frozenset({0, 3, 13, 25, 26})  # no error, or a board or driver without events
_RULES: Final = (memory.bad, pcie.bad, links.bad, fabric.bad, speed.bad, modes.bad)


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as evidence."""

    bad: list[Evidence]
    """What is bad now."""
    readable: set[str]
    """What was read well; "" is the node."""
    happened: list[Evidence] = []
    """What happened since the last look, which no good reading takes back."""


def judge_snapshot(snapshot: Snapshot, matched: Matched, expected_gpus: int, now: float) -> Readings:
    """Return what a snapshot whose GPUs have been matched with the inventory shows."""
    if snapshot.released is not None:
        line = f"NVML is let go of for up to {snapshot.released:.0f} s, so that a GPU can be reset"
        return Readings(bad=[_node(RELEASED, line, now)], readable=set())
    if snapshot.failed is not None:
        code = _FAILURES.get(snapshot.failed.code, "nvml/init")
        return Readings(bad=[_node(code, _failure(snapshot.failed), now)], readable=set())
    bad = [evidence for look in _looks(snapshot, matched, now) for evidence in _of_gpu(look)]
    bad += [_hang(uuid, hang, now) for uuid, hang in matched.hung.items()]
    bad += _absent(matched, expected_gpus, now)
    bad += _of_node(snapshot, now)
    readable = {uuid for uuid, gpu in matched.read.items() if not gpu.errors}
    return Readings(bad=bad, readable=readable | {""}, happened=list(_happened(matched, now)))


def _looks(snapshot: Snapshot, matched: Matched, now: float) -> Iterator[Look]:
    for uuid, gpu in matched.read.items():
        yield Look(
            uuid=uuid,
            gpu=gpu,
            now=now,
            trend=snapshot.trends.get(uuid, Trend()),
            record=matched.records.get(uuid),
            siblings=[other for other in matched.read.values() if _is_sibling(gpu, other)],
        )


def _is_sibling(gpu: GPUReading, other: GPUReading) -> bool:
    return other is not gpu and other.model == gpu.model and not other.errors


def _of_gpu(look: Look) -> Iterator[Evidence]:
    yield from presence.bad(look)
    if not look.gpu.uuid:
        return  # nothing was read
    for rule in _RULES:
        yield from rule(look)


def _absent(matched: Matched, expected_gpus: int, now: float) -> Iterator[Evidence]:
    for record in matched.missing:
        yield _gpu("gpu/missing", record.uuid, _missing(record), now)
    for device in matched.unlisted:
        yield _gpu("gpu/unlisted", address_id(device.address), _unlisted(device), now)
    if matched.listed < expected_gpus and not matched.missing and not matched.unlisted:
        yield _node("gpu/count", f"NVML lists {matched.listed} GPUs, {expected_gpus} are expected", now)


def _of_node(snapshot: Snapshot, now: float) -> Iterator[Evidence]:
    library, driver = snapshot.nvml_version, snapshot.driver_version
    if library and driver and not library.endswith(driver):
        yield _node("nvml/versions", f"NVML is of version {library}, the driver of version {driver}", now)
    if snapshot.events_code not in _NO_EVENTS:
        yield _node("nvml/events", f"waiting for NVML's events ends with {snapshot.events_code}", now)


def _happened(matched: Matched, now: float) -> Iterator[Evidence]:
    """Errors that came before a reset or reboot that nobody saw; later ones show in the count since then."""
    for uuid, rise in matched.risen.items():
        if matched.read[uuid].ecc_uncorrected:
            continue
        line = f"the board's lifetime count of uncorrectable memory errors rose by {rise} since it was last read"
        yield seen(
            "ecc/uncorrected-before", now, subject=SubjectKind.GPU, subject_id=uuid, line=line, source=COUNTERS_SOURCE
        )


def _failure(failed: Failed) -> str:
    return f"{failed.call} answers {failed.code}: {failed.text}"


def _hang(uuid: str, hang: Hang, now: float) -> Evidence:
    return _gpu("monitor/blind", uuid, f"NVML calls on this GPU did not return within {hang.seconds:g} s", now)


def _missing(record: GPURecord) -> str:
    return f"GPU {record.index} at {record.pci_address}, serial {record.serial or 'unknown'}, is no longer listed"


def _unlisted(device: PCIDevice) -> str:
    driver = f"driver {device.driver}" if device.driver else "no driver"
    return f"the PCI bus has a GPU at {device.address} ({driver}) that NVML does not list"


def _gpu(code: str, uuid: str, line: str, now: float) -> Evidence:
    return seen(code, now, subject=SubjectKind.GPU, subject_id=uuid, line=line, source=SOURCE)


def _node(code: str, line: str, now: float) -> Evidence:
    return seen(code, now, line=line, source=SOURCE)
