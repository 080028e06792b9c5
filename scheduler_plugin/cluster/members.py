"""Which pods the planner places, and what each asks for."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from outrider.api.core import Job, Pod, PyTorchJob, Toleration
from outrider.api.gangplacement import GangPlacement
from outrider.api.meta import OwnerReference
from outrider.api.names import IGNORE_LABEL, JOB_UID_LABEL, SCHEDULER_NAME
from outrider.api.trainingpolicy import TrainingPolicySpec
from outrider.workloads import GPU, gang_of, gated, requests_of

PODS: Final = "pods"  # the kubelet's own resource: how many pods a node takes


class GangState(msgspec.Struct, frozen=True):
    """All that is known about one job's gang. ``pods`` leaves out failed pods and those being deleted."""

    job: OwnerReference
    namespace: str
    owner: Job | PyTorchJob | None
    pods: tuple[Pod, ...]
    placement: GangPlacement | None
    policy: TrainingPolicySpec = TrainingPolicySpec()


class Member(msgspec.Struct, frozen=True):
    """A pod to place. ``requests`` are thousandths by resource name, and one pod."""

    uid: str
    name: str
    rank: int
    requests: Mapping[str, int]
    node_selector: Mapping[str, str] = {}
    affinity: Mapping[str, Any] = {}
    tolerations: tuple[Toleration, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs asked for, in thousandths."""
        return self.requests.get(GPU, 0)

    def shape(self) -> bytes:
        """Return what makes two pods interchangeable for placement."""
        return msgspec.json.encode(
            (self.requests, self.node_selector, self.affinity, self.tolerations), order="deterministic"
        )


def amounts_of(pod: Pod) -> dict[str, int]:
    """Return what the pod takes of its node, in thousandths: its requests and its own slot. Raises BadQuantity."""
    return requests_of(pod) | {PODS: 1000}


def member(pod: Pod, rank: int) -> Member:
    """Return the pod as a member of its gang. Raises BadQuantity."""
    spec = pod.spec
    return Member(
        uid=pod.metadata.uid,
        name=pod.metadata.name,
        rank=rank,
        requests=amounts_of(pod),
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=tuple(spec.tolerations),
    )


def managed(pod: Pod) -> bool:
    """Return whether the planner places the pod: of a job, and marked by the webhook or sent to our scheduler.

    A pod whose gate was lifted by hand is still one of them: filter keeps it waiting until it is planned.
    """
    meta = pod.metadata
    if gang_of(pod) is None or meta.labels.get(IGNORE_LABEL) == "true":
        return False
    return gated(pod) or JOB_UID_LABEL in meta.labels or pod.spec.scheduler_name == SCHEDULER_NAME


def gone(pod: Pod) -> bool:
    """Return whether the pod runs no more, or is about to."""
    return pod.finished or pod.metadata.deletion_timestamp is not None
