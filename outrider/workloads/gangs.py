"""From a pod to the job that owns its gang, its rank in it, and the gang's size."""

from collections.abc import Sequence
from typing import Final

from outrider.api.core import Job, Owner, Pod
from outrider.api.kubeflow import PyTorchJob
from outrider.api.names import GANG_GATE, JOB_UID_LABEL
from outrider.workloads.model import NO_SEGMENT, GangRef, Seat, Size

# Labels and annotations of the job controllers (batch/v1 Job; training-operator).
_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"

# Kinds alone do not tell: Volcano's job kind is also called Job.
_GANG_KINDS: Final = {("batch", "Job"), ("kubeflow.org", "PyTorchJob")}


def gang_of(pod: Pod) -> GangRef | None:
    """Return the job (batch Job or PyTorchJob) that controls the pod, or None for a pod on its own."""
    owner = pod.metadata.controller()
    if owner is None or (owner.api_version.partition("/")[0], owner.kind) not in _GANG_KINDS:
        return None
    return GangRef(owner.api_version, owner.kind, owner.name, owner.uid)


def job_uid_of(pod: Pod) -> str:
    """Return the UID of the job that admission found to own the pod's gang, empty for none."""
    return pod.metadata.labels.get(JOB_UID_LABEL, "")


def gated(pod: Pod) -> bool:
    """True while the pod waits for its gang's plan."""
    return any(gate.name == GANG_GATE for gate in pod.spec.scheduling_gates)


def rank_of(pod: Pod, owner: Owner | None = None) -> int | None:
    """Return the pod's place in its gang, None where its controller numbers no pods (a Job that is not Indexed).

    A PyTorchJob's Master comes first and its workers follow, as training-operator sets RANK; without the owner at
    hand one Master is assumed. A number that is no number is treated as absent.
    """
    meta = pod.metadata
    index = _number(meta.labels.get(_COMPLETION_INDEX) or meta.annotations.get(_COMPLETION_INDEX))
    if index is not None:
        return index
    replica = _number(meta.labels.get(_REPLICA_INDEX))
    if replica is None:
        return None
    return replica + (0 if meta.labels.get(_REPLICA_TYPE, "").lower() == "master" else _masters(owner))


def role_of(pod: Pod) -> str:
    """Return what its controller calls the pod's part in the gang, such as worker; empty where it has no name."""
    return pod.metadata.labels.get(_REPLICA_TYPE, "")


def stage_of(pod: Pod, owner: Owner | None = None) -> int:
    """Return the pod's stage: those of stage 0 come first, and of a higher one once the lower ones are scheduled.

    BEFORE is the stage of pods that end before the gang starts: they are placed on their own.
    """
    del pod, owner
    return 0


def segment_of(pod: Pod, owner: Owner | None = None) -> int:
    """Return the number of the part of the gang whose pods belong together, NO_SEGMENT where the owner makes none."""
    del pod, owner
    return NO_SEGMENT


def seats_of(gang: GangRef, owner: Owner | None) -> tuple[Seat, ...]:
    """Return the gang's pods as its owner will create them, those that exist included; none where that is unknown."""
    del gang, owner
    return ()


def size_of(owner: Owner | None, pods: Sequence[Pod] = ()) -> Size:
    """Return how many pods of the job run together, by its owner, else by what the pods that are there say.

    Job: min(parallelism, completions), where absent parallelism is 1 and absent completions set no bound. PyTorchJob:
    the sum of its roles' replicas, 1 for a role that names none.
    """
    del pods
    if owner is None:
        return Size(0, "the job that owns the pod is not known yet")
    asked = _job_pods(owner) if isinstance(owner, Job) else _replicas(owner) if isinstance(owner, PyTorchJob) else 0
    return Size(asked) if asked > 0 else Size(0, "the job asks for no pods")


def _job_pods(job: Job) -> int:
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    return parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)


def _replicas(job: PyTorchJob) -> int:
    roles = job.spec.replica_specs.values()
    return sum(1 if role.replicas is None else role.replicas for role in roles)


def _masters(owner: Owner | None) -> int:
    if not isinstance(owner, PyTorchJob):
        return 1
    return sum(name.lower() == "master" for name in owner.spec.replica_specs)


def _number(text: str | None) -> int | None:
    return int(text) if text and len(text) < 10 and text.isascii() and text.isdigit() else None
