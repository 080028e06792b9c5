"""What a pod asks of its node, counted as kube-scheduler counts it."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from outrider.api.core import Container, Pod
from outrider.workloads.quantities import milli

GPU: Final = "nvidia.com/gpu"  # the resource of NVIDIA's device plugin


def requests_of(pod: Pod) -> dict[str, int]:
    """Return the pod's requests in thousandths by resource name.

    Containers add up; init containers run one after the other, beside the sidecars started before them (KEP-753).
    A resource with only a limit counts by its limit, as the API server defaults it. Raises BadQuantity.
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
    return {name: amount for name, amount in ((running + sidecars) | peak).items() if amount > 0}


def gpus_of(pod: Pod, resource: str = GPU) -> int:
    """Return the whole GPUs that the pod asks for. Raises BadQuantity."""
    return -(-requests_of(pod).get(resource, 0) // 1000)


def _asked(container: Container) -> Mapping[str, int]:
    amounts = container.resources.limits | container.resources.requests
    return {name: milli(amount) for name, amount in amounts.items()}
