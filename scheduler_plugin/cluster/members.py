"""Which pods the planner places, and what each asks for."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from outrider.api.core import Owner, Pod, PodSpec, Toleration
from outrider.api.gangplacement import GangPlacement
from outrider.api.names import IGNORE_LABEL, JOB_UID_LABEL, SCHEDULER_NAME
from outrider.api.trainingpolicy import TrainingPolicySpec
from outrider.workloads import (
    NO_SEGMENT,
    GangRef,
    Seat,
    gang_of,
    gated,
    requests_of,
    role_of,
    segment_of,
    stage_of,
)
from outrider.workloads.resources import GPU_RESOURCES, gpus_in
from scheduler_plugin.cluster.guests import Guest, guest_of

_NOBODY: Final = Guest("")
PODS: Final = "pods"  # the kubelet's own resource: how many pods a node takes


class GangState(msgspec.Struct, frozen=True):
    """All that is known about one gang.

    ``pods`` leaves out those that failed or are being deleted, and those that others place (``is_member``). ``notes``
    say in plain words what the pods disagree on, and what holds.
    """

    job: GangRef
    namespace: str
    owner: Owner | None
    pods: tuple[Pod, ...]
    placement: GangPlacement | None
    policy: TrainingPolicySpec = TrainingPolicySpec()
    notes: tuple[str, ...] = ()


class Member(msgspec.Struct, frozen=True):
    """A pod to place. ``requests`` are thousandths by resource name, and one pod.

    ``stage``, ``role`` and ``segment`` are what ``outrider.workloads.Seat`` says of them; ``guest`` is what the pod
    means for others, and they for it; ``gpu_resources`` are the names that count as GPUs.
    """

    uid: str
    name: str
    rank: int
    requests: Mapping[str, int]
    node_selector: Mapping[str, str] = {}
    affinity: Mapping[str, Any] = {}
    tolerations: tuple[Toleration, ...] = ()
    role: str = ""
    stage: int = 0
    segment: int = NO_SEGMENT
    guest: Guest = _NOBODY
    gpu_resources: tuple[str, ...] = GPU_RESOURCES

    @property
    def gpus(self) -> int:
        """GPUs asked for, in thousandths."""
        return gpus_in(self.requests, self.gpu_resources)

    @property
    def needs_gpu(self) -> bool:
        """True where its node's hardware must be sound: it asks for GPUs, or claims devices of unknown kind."""
        return self.guest.devices or self.gpus > 0

    def shape(self) -> bytes:
        """Return what makes two pods interchangeable for placement."""
        guest = self.guest
        bonds = (guest.ports, guest.spread, guest.devices) if guest.bonds or guest.devices else None
        return msgspec.json.encode(
            (self.requests, self.node_selector, self.affinity, self.tolerations, bonds), order="deterministic"
        )


def amounts_of(pod: Pod) -> dict[str, int]:
    """Return what the pod takes of its node, in thousandths: its requests and its own slot. Raises BadQuantity."""
    return requests_of(pod) | {PODS: 1000}


def member(pod: Pod, rank: int, owner: Owner | None = None) -> Member:
    """Return the pod as a member of its gang; ``owner`` tells more of its place there. Raises BadQuantity."""
    seat = Seat(rank, role_of(pod), stage_of(pod, owner), segment_of(pod, owner))
    return _member(pod.metadata.uid, pod.metadata.name, pod, seat)


def seat_member(gang: GangRef, seat: Seat) -> Member:
    """Return a pod that does not exist yet as a member, so that its node can be kept. Raises BadQuantity.

    Its UID is none that the API server gives: ``rank-N`` of the gang.
    """
    name = f"rank-{seat.rank}"
    return _member(f"{gang.uid}/{name}", name, Pod(spec=seat.pod or PodSpec()), seat)


def _member(uid: str, name: str, pod: Pod, seat: Seat) -> Member:
    spec = pod.spec
    return Member(
        uid=uid,
        name=name,
        rank=seat.rank,
        requests=amounts_of(pod),
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=tuple(spec.tolerations),
        role=seat.role,
        stage=seat.stage,
        segment=seat.segment,
        guest=msgspec.structs.replace(guest_of(pod), uid=uid),
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
