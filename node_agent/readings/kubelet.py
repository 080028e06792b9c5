"""The kubelet's count of GPUs beside NVML's: a node that offers GPUs which nobody can use swallows pod after pod. Pure.

The kubelet keeps what the device plugin told it last: a plugin that hangs, or that lost sight of the driver, leaves
GPUs on offer that are gone. The other way round costs capacity: plugins keep a GPU out of use that has recovered
(NVIDIA's k8s-device-plugin, internal/rm/health.go: nothing returns to healthy).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from node_agent.inventory import GPURecord
from node_agent.readings.nvml import BLIND_CODES
from outrider.api.core import Node
from outrider.api.gpunode import SubjectKind
from outrider.health.findings import Evidence
from outrider.workloads.quantities import BadQuantity, milli
from outrider.workloads.resources import GPU

BLACK_HOLE: Final = "kubelet/black-hole"
UNADVERTISED: Final = "kubelet/unadvertised"
UNUSABLE: Final = frozenset(
    {
        *("gpu/lost", "gpu/missing", "gpu/reset-required", "gpu/unreadable", "gpu/no-access", "gpu/unavailable"),
        "monitor/blind",
    }
)
"""Findings of a GPU that mean that NVML, and so a program, can't use it."""
_MIG: Final = "nvidia.com/mig-"  # with the mixed strategy GPUs in MIG mode are counted under names of their own
_NVML: Final = "nvml"


class Comparison(msgspec.Struct, frozen=True):
    """Whether the two counts agree: where they don't, the code of the finding that this is once it lasts."""

    code: str = ""
    line: str = ""
    possible: bool = True
    """False where one of the views is missing, so that nothing can be told."""


def compare(node: Node | None, inventory: Sequence[GPURecord], findings: Collection[Evidence]) -> Comparison:
    """Return how the kubelet's count of GPUs differs from NVML's."""
    if node is None or not inventory or _nvml_is_blind(findings):
        return Comparison(possible=False)
    capacity, offered = (_count(amounts) for amounts in (node.status.capacity, node.status.allocatable))
    if capacity is None or offered is None:
        return Comparison()  # no device plugin here: GPUs are given out by DRA, or not at all
    unusable = {evidence.owner for evidence in findings if evidence.code in UNUSABLE}
    lost = [record for record in inventory if record.uuid in unusable]
    usable = len(inventory) - len(lost)
    each = _devices_each(capacity, len(inventory))
    offered_gpus = offered / each
    words = f"the kubelet offers {offered_gpus:g} GPUs to pods, NVML can use {usable}"
    if offered_gpus > usable:
        names = ", ".join(f"GPU {record.index}" for record in lost)
        return Comparison(BLACK_HOLE, f"{words}{f' (not {names})' if names else ''}")
    if offered_gpus < usable and not any(name.startswith(_MIG) for name in node.status.capacity):
        return Comparison(UNADVERTISED, words)
    return Comparison()


def _nvml_is_blind(findings: Iterable[Evidence]) -> bool:
    """Where NVML can't be read at all, that is the finding, and there is nothing to compare with."""
    return any(
        evidence.code in BLIND_CODES
        or (
            evidence.code == "monitor/blind"
            and evidence.subject is SubjectKind.NODE
            and _NVML in (evidence.subject_id, evidence.source)
        )
        for evidence in findings
    )


def _count(amounts: dict[str, str]) -> int | None:
    try:
        return milli(amounts[GPU]) // 1000
    except (KeyError, BadQuantity):
        return None


def _devices_each(capacity: int, gpus: int) -> int:
    """Devices that the plugin makes of one GPU: time slices, or MIG devices with the single strategy."""
    return capacity // gpus if capacity > gpus and capacity % gpus == 0 else 1
