"""What a pod asks of its node, counted as kube-scheduler counts it."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from outrider.api.core import Container, Pod
from outrider.workloads.quantities import milli

GPU: Final = "nvidia.com/gpu"  # the resource of NVIDIA's device plugin
# Resource names that count as GPUs; a last * stands for any ending. NVIDIA's device plugin: whole, shared and MIG
# devices. AMD's: whole devices. Intel's: i915 and xe; its millicores, tiles and memory come on top of a device.
GPU_RESOURCES: Final = (
    GPU,
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-*",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
)
_POD_LEVEL: Final = ("cpu", "memory", "hugepages-*")  # what a pod may ask for as a whole (KEP-2837)


@lru_cache(maxsize=4096)
def is_gpu(name: str, patterns: tuple[str, ...] = GPU_RESOURCES) -> bool:
    """Return whether a resource of that name stands for GPUs."""
    return _matches(name, patterns)


def gpus_in(amounts: Mapping[str, int], patterns: tuple[str, ...] = GPU_RESOURCES) -> int:
    """Return the GPUs among amounts of resources, in the unit of the amounts."""
    return sum(amount for name, amount in amounts.items() if is_gpu(name, patterns))


def requests_of(pod: Pod) -> dict[str, int]:
    """Return the pod's requests in thousandths by resource name.

    Containers add up; init containers run one after the other, beside the sidecars started before them (KEP-753).
    A resource with only a limit counts by its limit, as the API server defaults it. What the pod asks for as a whole
    goes before its containers, the overhead of its runtime on top. Raises BadQuantity.
    """
    running: Counter[str] = Counter()
    for container in pod.spec.containers:
        running.update(_asked(container))
    peak: Counter[str] = Counter()
    sidecars: Counter[str] = Counter()
    for container in pod.spec.init_containers:
        asked = _asked(container)
        if container.restart_policy == "Always":
            sidecars.update(asked)
            peak |= sidecars
        else:
            peak |= sidecars + Counter(asked)
    asked = Counter({**((running + sidecars) | peak), **_of_whole_pod(pod)})
    for name, amount in pod.spec.overhead.items():
        asked[name] += milli(amount)
    return {name: amount for name, amount in asked.items() if amount > 0}


def gpus_of(pod: Pod, patterns: tuple[str, ...] = GPU_RESOURCES) -> int:
    """Return the whole GPUs that the pod asks for, of any kind. Raises BadQuantity."""
    return -(-gpus_in(requests_of(pod), patterns) // 1000)


def _of_whole_pod(pod: Pod) -> Counter[str]:
    """Return what the pod asks for as a whole: it stands in place of what its containers ask for."""
    if pod.spec.resources is None:
        return Counter()
    amounts = pod.spec.resources.limits | pod.spec.resources.requests
    return Counter({name: milli(amount) for name, amount in amounts.items() if _matches(name, _POD_LEVEL)})


def _asked(container: Container) -> Mapping[str, int]:
    amounts = container.resources.limits | container.resources.requests
    return {name: milli(amount) for name, amount in amounts.items()}


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in patterns)
