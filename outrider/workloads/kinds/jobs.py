"""Kubernetes' own: batch/v1 Job and apps/v1 StatefulSet."""

from typing import Final

from outrider.api.core import Job, JobSpec, Pod, StatefulSet
from outrider.workloads.kinds.family import Family, Place, controlled_by, number, ordinal
from outrider.workloads.kinds.roles import Role, size_from
from outrider.workloads.model import Size

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"  # KEP-2214: annotation, since 1.28 a label too
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"  # KEP-4017
_JOBS: Final = {("batch", "Job"): Job}
_STATEFULSETS: Final = {("apps", "StatefulSet"): StatefulSet}


def completion_index(pod: Pod) -> int | None:
    """Return the pod's number in an Indexed Job, None in any other."""
    meta = pod.metadata
    return number(meta.labels.get(COMPLETION_INDEX) or meta.annotations.get(COMPLETION_INDEX))


def pods_at_once(spec: JobSpec) -> int:
    """Return how many pods of a Job run together: absent parallelism is 1, absent completions set no bound."""
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    return parallelism if spec.completions is None else min(parallelism, spec.completions)


def _job_place(pod: Pod) -> Place:
    return Place("", completion_index(pod))


def _job_roles(job: Job) -> tuple[Role, ...]:
    return (Role("", pods_at_once(job.spec), job.spec.template),)


def _job_size(job: Job) -> Size:
    size = size_from(_job_roles(job))
    if job.spec.completion_mode == "Indexed" or size.pods == 1:
        return size
    return Size(0, "the Job is not Indexed, so that its pods are independent workers")


def _indexed(pod: Pod) -> bool:
    return completion_index(pod) is not None


def _set_place(pod: Pod) -> Place:
    index = number(pod.metadata.labels.get(_POD_INDEX))
    return Place("", ordinal(pod.metadata.name) if index is None else index)


def _set_rank(pod: Pod) -> int | None:
    return _set_place(pod).index


def _set_roles(owner: StatefulSet) -> tuple[Role, ...]:
    replicas = 1 if owner.spec.replicas is None else owner.spec.replicas
    return (Role("", replicas, owner.spec.template),)


def _set_size(owner: StatefulSet) -> Size:
    size = size_from(_set_roles(owner))
    if owner.spec.pod_management_policy == "Parallel" or size.pods == 1:
        return size
    return Size(0, "the StatefulSet starts its pods one after the other (podManagementPolicy is not Parallel)")


JOB: Final = Family(
    owners=_JOBS,
    gang=lambda pod: controlled_by(pod, _JOBS),
    place=_job_place,
    rank_alone=completion_index,
    roles=_job_roles,
    size=_job_size,
    gated=_indexed,
)
STATEFULSET: Final = Family(
    owners=_STATEFULSETS,
    gang=lambda pod: controlled_by(pod, _STATEFULSETS),
    place=_set_place,
    rank_alone=_set_rank,
    roles=_set_roles,
    size=_set_size,
)
