"""From NVML's numbers to evidence: which states of a snapshot are faults, and of which GPU. Pure.

What a return code means comes from the field: 15 the GPU is lost, 16 it wants a reset, anything else on one GPU that
is not "no such value" makes that GPU unreadable, which is silence and not a verdict on the hardware.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from node_agent.inventory import GPURecord, Matched
from node_agent.probes.nvml_wire import Failed, GPUReading, Hang, Snapshot
from outrider.api.gpunode import SubjectKind
from outrider.health.findings import Evidence, seen

_LOST: Final = 15
_RESET_REQUIRED: Final = 16
SOURCE: Final = "nvml"


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as evidence: what is bad, and which subjects were read well ("" is the node)."""

    bad: list[Evidence]
    readable: set[str]


def judge_snapshot(snapshot: Snapshot, matched: Matched, expected_gpus: int, now: float) -> Readings:
    """Return all bad states of a snapshot whose GPUs have been matched with the inventory."""
    if snapshot.failed is not None:
        return Readings(bad=[_node("nvml/init", _failure(snapshot.failed), now)], readable=set())
    bad = [evidence for uuid, gpu in matched.read.items() for evidence in _of_gpu(uuid, gpu, matched, now)]
    bad += [_hang(uuid, hang, now) for uuid, hang in matched.hung.items()]
    bad += [_gpu("gpu/missing", record.uuid, _missing(record), now) for record in matched.missing]
    if matched.listed < expected_gpus and not matched.missing:
        bad.append(_node("gpu/count", f"NVML lists {matched.listed} GPUs, {expected_gpus} are expected", now))
    readable = {uuid for uuid, gpu in matched.read.items() if not gpu.errors}
    return Readings(bad=bad, readable=readable | {""})


def _of_gpu(uuid: str, gpu: GPUReading, matched: Matched, now: float) -> Iterator[Evidence]:
    if gpu.errors:
        yield _unanswered(uuid, gpu.errors, now)
    if gpu.recovery_action:
        line = f"NVML recovery action {gpu.recovery_action}"
        yield _gpu(f"recovery/{gpu.recovery_action}", uuid, line, now)
    if gpu.remap_failure:
        yield _gpu("remap/failure", uuid, "NVML reports that a row remap failed", now)
    if gpu.remap_pending:
        yield _gpu("remap/pending", uuid, "NVML reports a row remap that waits for a reset", now)
    if gpu.ecc_uncorrected:
        line = f"{gpu.ecc_uncorrected} uncorrectable memory errors since the driver was loaded"
        yield _gpu("ecc/uncorrected", uuid, line, now)
    if gpu.links_inactive and _links_expected(gpu, matched.records.get(uuid)):
        links = ", ".join(map(str, gpu.links_inactive))
        of = gpu.links_active + len(gpu.links_inactive)
        yield _gpu("nvlink/inactive", uuid, f"{len(gpu.links_inactive)} of {of} NVLinks inactive: {links}", now)


def _unanswered(uuid: str, errors: dict[str, int], now: float) -> Evidence:
    calls = ", ".join(f"{call} answers {code}" for call, code in sorted(errors.items()))
    codes = set(errors.values())
    if _LOST in codes:
        return _gpu("gpu/lost", uuid, f"NVML: {calls} (GPU is lost)", now)
    if _RESET_REQUIRED in codes:
        return _gpu("gpu/reset-required", uuid, f"NVML: {calls} (GPU requires reset)", now)
    return _gpu("gpu/unreadable", uuid, f"NVML: {calls}", now)


def _links_expected(gpu: GPUReading, record: GPURecord | None) -> bool:
    """True where inactive links are a fault: on boards with an NVSwitch fabric or SXM form, and where more were up.

    A PCIe board without a bridge lists all its links as inactive, and one with a bridge some of them, for ever.
    """
    fabric = bool(gpu.fabric_state) or "SXM" in gpu.model
    best = record.links_best if record else 0
    return fabric or gpu.links_active < best


def _failure(failed: Failed) -> str:
    return f"{failed.call} answers {failed.code}: {failed.text}"


def _hang(uuid: str, hang: Hang, now: float) -> Evidence:
    return _gpu("monitor/blind", uuid, f"NVML calls on this GPU did not return within {hang.seconds:g} s", now)


def _missing(record: GPURecord) -> str:
    return f"GPU {record.index} at {record.pci_address}, serial {record.serial or 'unknown'}, is no longer listed"


def _gpu(code: str, uuid: str, line: str, now: float) -> Evidence:
    return seen(code, now, subject=SubjectKind.GPU, subject_id=uuid, line=line, source=SOURCE)


def _node(code: str, line: str, now: float) -> Evidence:
    return seen(code, now, line=line, source=SOURCE)
