"""The NVSwitch fabric as the GPU sees it: state, status, clique, health. Pure.

A fabric can be "completed" and dead at once, with links up and peer access gone: its status tells, not its state. A
health mask of zero in one place says nothing; boards fill in what they have.
"""

from collections.abc import Iterator
from typing import Final

from node_agent.readings.nvml.look import Look, usual
from outrider.health.findings import Evidence

_COMPLETED: Final = 3  # nvml.h, NVML_GPU_FABRIC_STATE_*
_STATES: Final = {1: "not started", 2: "in progress"}
_TRUE: Final = 1  # of a two-bit field: 0 not supported, 1 true, 2 false
# Shift in the health mask, code, words (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*).
_FLAGS: Final = (
    (0, "fabric/degraded-bandwidth", "the bandwidth to the fabric is degraded"),
    (2, "fabric/route-recovery", "routes in the fabric are being recovered"),
    (4, "fabric/route-unhealthy", "routes in the fabric are unhealthy"),
    (6, "fabric/access-timeout", "the GPU recovers from a timeout of fabric access"),
)
_CONFIG_SHIFT: Final = 8
_CONFIG_NONE: Final = 1  # 0 not supported, 1 no mistake
_CONFIGS: Final = {
    2: "system GUID",
    3: "chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "firmware",
    7: "location",
    8: "GPU state",
}
_MANAGER_SHIFT: Final = 14
_DISCONNECTED: Final = 2
_UNHEALTHY, _LIMITED = 2, 3  # NVML_GPU_FABRIC_HEALTH_SUMMARY_*


def bad(look: Look) -> Iterator[Evidence]:
    """Yield what is wrong with the GPU's place in the fabric."""
    gpu = look.gpu
    if not gpu.fabric_state:
        return  # None or 0: no fabric, which is right for PCIe boards and single-GPU machines
    if gpu.fabric_state != _COMPLETED:
        words = _STATES.get(gpu.fabric_state, f"state {gpu.fabric_state}, which Outrider does not know")
        yield look.finding("fabric/incomplete", f"the registration with the NVSwitch fabric is {words}")
        return
    if gpu.fabric_status:
        yield look.finding("fabric/failed", f"the registration with the NVSwitch fabric ended with {gpu.fabric_status}")
    yield from _apart(look)
    known = list(_health(look, gpu.fabric_health_mask or 0))
    yield from known
    if not known:
        yield from _summary(look)


def _apart(look: Look) -> Iterator[Evidence]:
    """GPUs of one node are in one NVLink domain; one with another clique or cluster can't reach the others."""
    own = (look.gpu.fabric_cluster, look.gpu.fabric_clique)
    others = usual(
        (sibling.fabric_cluster, sibling.fabric_clique)
        for sibling in look.siblings
        if sibling.fabric_state == _COMPLETED
    )
    if others is not None and own != others:
        line = f"fabric clique {own[1]} of cluster {own[0]}, the node's other GPUs have {others[1]} of {others[0]}"
        yield look.finding("fabric/clique", line)


def _health(look: Look, mask: int) -> Iterator[Evidence]:
    for shift, code, words in _FLAGS:
        if mask >> shift & 3 == _TRUE:
            yield look.finding(code, f"{words} (health mask {mask:#x})")
    config = mask >> _CONFIG_SHIFT & 0xF
    if config > _CONFIG_NONE:
        words = _CONFIGS.get(config, f"number {config}")
        yield look.finding("fabric/config", f"the fabric's configuration is wrong: {words} (health mask {mask:#x})")
    if mask >> _MANAGER_SHIFT & 3 == _DISCONNECTED:
        yield look.finding("fabric/manager", f"the fabric manager is not connected (health mask {mask:#x})")


def _summary(look: Look) -> Iterator[Evidence]:
    if look.gpu.fabric_health_summary == _UNHEALTHY:
        yield look.finding("fabric/unhealthy", "NVML sums the fabric's health up as unhealthy")
    elif look.gpu.fabric_health_summary == _LIMITED:
        yield look.finding("fabric/limited", "NVML sums the fabric's health up as of limited capacity")
