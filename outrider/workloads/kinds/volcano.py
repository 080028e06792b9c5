"""Volcano's Job. Labels and annotations: volcano.sh/apis batch/v1alpha1 labels.go."""

from typing import Final

from outrider.api.core import Pod
from outrider.api.volcano import Task, VolcanoJob
from outrider.workloads.kinds.family import Family, Place, controlled_by, number
from outrider.workloads.kinds.roles import Role, size_from
from outrider.workloads.model import Size

_TASK: Final = "volcano.sh/task-spec"
_INDEX: Final = "volcano.sh/task-index"
_OWNERS: Final = {("batch.volcano.sh", "Job"): VolcanoJob}


def _place(pod: Pod) -> Place:
    known = pod.metadata.annotations | pod.metadata.labels
    return Place(known.get(_TASK, ""), number(known.get(_INDEX)))


def _roles(job: VolcanoJob) -> tuple[Role, ...]:
    roles: dict[str, Role] = {}
    waiting = list(job.spec.tasks)
    while waiting:
        ready = [task for task in waiting if not _needs(task) & {one.name for one in waiting if one is not task}]
        for task in ready or waiting:  # tasks that wait for each other would never start: they count as one stage
            roles[task.name] = _role(task, [roles[name].stage for name in _needs(task) if name in roles])
        waiting = [task for task in waiting if task.name not in roles]
    return tuple(roles[name] for name in dict.fromkeys(task.name for task in job.spec.tasks))


def _needs(task: Task) -> set[str]:
    return set(task.depends_on.name) if task.depends_on else set()


def _role(task: Task, before: list[int]) -> Role:
    pods = max(task.replicas, 0)
    least = None if task.min_available is None else min(max(task.min_available, 0), pods)
    return Role(task.name, pods, task.template, stage=max(before, default=-1) + 1, least=least)


def _size(job: VolcanoJob) -> Size:
    return size_from(_roles(job), job.spec.min_available or None)


VOLCANO_JOB: Final = Family(
    owners=_OWNERS,
    gang=lambda pod: controlled_by(pod, _OWNERS),
    place=_place,
    roles=_roles,
    size=_size,
)
