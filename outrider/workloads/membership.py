"""Which pods the scheduler plugin places: those that ask for GPUs, and those that someone sent to it."""

from collections.abc import Sequence

from outrider.api.core import Container, Pod, PodSpec
from outrider.api.names import GANG_GATE, JOB_UID_LABEL, SCHEDULER_NAME
from outrider.workloads.quantities import BadQuantity, milli
from outrider.workloads.resources import is_gpu


def placed_by_us(spec: PodSpec) -> bool:
    """Return whether pods of this spec are of a gang: they ask for GPUs (or devices by claim), or name our scheduler.

    What asks for neither (an MPI launcher, the head of a Ray cluster) is placed by the cluster's default scheduler as
    soon as it exists, and no gang waits for it.
    """
    if spec.scheduler_name == SCHEDULER_NAME or spec.resource_claims:
        return True
    return any(_asks_gpu(container) for container in (*spec.containers, *spec.init_containers))


def is_member(pod: Pod) -> bool:
    """Return whether the pod counts as one of its gang."""
    return JOB_UID_LABEL in pod.metadata.labels or gated(pod) or placed_by_us(pod.spec)


def gated(pod: Pod) -> bool:
    """True while the pod waits for its gang's plan."""
    return any(gate.name == GANG_GATE for gate in pod.spec.scheduling_gates)


def awaited(pods: Sequence[Pod]) -> str:
    """Return in plain words whose word the pods wait for beside ours, empty where no other gate holds one.

    Kueue admits and we place: while a gate of its own is there the pod may not run, and no node is kept for it.
    """
    gates = [gate.name for pod in pods for gate in pod.spec.scheduling_gates if gate.name != GANG_GATE]
    if not gates:
        return ""
    name = min(gates)
    held = sum(any(gate.name == name for gate in pod.spec.scheduling_gates) for pod in pods)
    who = "Kueue has not admitted" if name.startswith("kueue.x-k8s.io/") else "another controller still holds"
    return f"{who} {held} of {len(pods)} pods (scheduling gate {name})"


def _asks_gpu(container: Container) -> bool:
    amounts = container.resources.limits | container.resources.requests
    return any(is_gpu(name) and _positive(amount) for name, amount in amounts.items())


def _positive(amount: str) -> bool:
    try:
        return milli(amount) > 0
    except BadQuantity:
        return True
