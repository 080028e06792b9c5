"""JobSet, and with it Kubeflow's TrainJob, which runs as a JobSet. Labels: jobset/v1alpha2 jobset_types.go."""

import uuid
from collections.abc import Mapping
from typing import Final

import msgspec

from outrider.api.core import Pod
from outrider.api.jobset import JobSet, ReplicatedJob
from outrider.workloads.kinds.family import Family, Place, number
from outrider.workloads.kinds.jobs import completion_index, pods_at_once
from outrider.workloads.kinds.roles import Role
from outrider.workloads.model import BEFORE, NO_SEGMENT, GangRef, named

EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"  # each child job alone in a domain of this label
_NODE_SELECTORS: Final = "alpha.jobset.sigs.k8s.io/node-selector"  # ... by labels on nodes: then nobody comes first
_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_GLOBAL_REPLICAS: Final = "jobset.sigs.k8s.io/global-replicas"
_API_VERSION: Final = "jobset.x-k8s.io/v1alpha2"


def _gang(pod: Pod) -> GangRef | None:
    labels = pod.metadata.labels
    name = labels.get(_NAME)
    if not name:
        return None
    uid = labels.get(_UID, "")
    if _is_uid(uid):
        return GangRef(_API_VERSION, "JobSet", name, uid)
    return named(_API_VERSION, "JobSet", pod.metadata.namespace, name)


def _is_uid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _place(pod: Pod) -> Place:
    labels = pod.metadata.labels
    block = number(labels.get(_JOB_INDEX))
    index = None if block is None else completion_index(pod)
    return Place(labels.get(_REPLICATED_JOB, ""), index, block or 0)


def _rank_alone(pod: Pod) -> int | None:
    """Of one job only the index is the rank; of several none can be told without knowing how large each is."""
    return completion_index(pod) if pod.metadata.labels.get(_GLOBAL_REPLICAS) == "1" else None


def _roles(jobset: JobSet) -> tuple[Role, ...]:
    roles: dict[str, Role] = {}
    jobs = 0
    for job in jobset.spec.replicated_jobs:
        roles[job.name] = _role(jobset, job, jobs)
        jobs += max(job.replicas, 0)
    return tuple(_staged(jobset, roles).values())


def _role(jobset: JobSet, job: ReplicatedJob, first: int) -> Role:
    each = max(pods_at_once(job.template.spec), 0)
    annotations = jobset.metadata.annotations | job.template.metadata.annotations
    exclusive = EXCLUSIVE in annotations
    return Role(
        name=job.name,
        pods=max(job.replicas, 0) * each,
        template=job.template.spec.template,
        block=each,
        led=exclusive and _NODE_SELECTORS not in annotations,
        segment=first if exclusive else NO_SEGMENT,
    )


def _staged(jobset: JobSet, roles: Mapping[str, Role]) -> dict[str, Role]:
    """Return the roles with the stages that dependsOn or the startup policy gives them.

    A job that another waits for to be Complete does not run together with the gang. A job can depend only on those
    that stand before it.
    """
    policy = jobset.spec.startup_policy
    in_order = policy is not None and policy.startup_policy_order == "InOrder"
    jobs = jobset.spec.replicated_jobs
    ended = {one.name for job in jobs for one in job.depends_on if one.status == "Complete"}
    staged: dict[str, Role] = {}
    for job in jobs:
        first = list(staged) if in_order else [one.name for one in job.depends_on if one.status != "Complete"]
        last = [staged[name].last_stage for name in first if name in staged and staged[name].stage != BEFORE]
        stage = BEFORE if job.name in ended else max(last, default=-1) + 1
        staged[job.name] = msgspec.structs.replace(roles[job.name], stage=stage)
    return staged


JOBSET: Final = Family(
    owners={("jobset.x-k8s.io", "JobSet"): JobSet},
    gang=_gang,
    marks=frozenset({_NAME}),
    place=_place,
    rank_alone=_rank_alone,
    roles=_roles,
)
