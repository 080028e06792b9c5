"""LeaderWorkerSet: each group of a leader and its workers is a gang. Labels: lws/v1 leaderworkerset_types.go.

The project's own webhook adds some of the labels, before or after ours; what it would add is read off the pod's name.
"""

from typing import Final

from outrider.api.core import Pod
from outrider.api.leaderworkerset import LeaderWorkerSet
from outrider.workloads.kinds.family import SILENT, Family, Place, Said, number, ordinal
from outrider.workloads.kinds.roles import Role
from outrider.workloads.model import NO_SEGMENT, GangRef, named

EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"  # each group alone in a domain of this label
SUBGROUP_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
SUBGROUP_SIZE: Final = "leaderworkerset.sigs.k8s.io/subgroup-size"
_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"
_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
_LEADER: Final = "leader"
_WORKERS: Final = "worker"
_API_VERSION: Final = "leaderworkerset.x-k8s.io/v1"


def _gang(pod: Pod) -> GangRef | None:
    labels = pod.metadata.labels
    name = labels.get(_NAME)
    if not name:
        return None
    group = labels.get(_GROUP) or pod.metadata.name.removeprefix(f"{name}-").partition("-")[0]
    return named(_API_VERSION, "LeaderWorkerSet", pod.metadata.namespace, name, group)


def _index(pod: Pod) -> int | None:
    """Return the pod's number in its group; the leader's is 0 and stands in its template."""
    index = number(pod.metadata.labels.get(_WORKER))
    return ordinal(pod.metadata.name) if index is None else index


def _place(pod: Pod) -> Place:
    index = _index(pod)
    if index is None:
        return Place()
    return Place(_WORKERS, index - 1) if index else Place(_LEADER, 0)


def _said(pod: Pod) -> Said:
    text = pod.metadata.annotations.get(_SIZE)
    size = number(text)
    if size:
        return Said(size)
    return Said(wrong=f"annotation {_SIZE}: {text[:64]!r} is no number of pods") if text is not None else SILENT


def _roles(owner: LeaderWorkerSet) -> tuple[Role, ...]:
    template = owner.spec.leader_worker_template
    size = 1 if template.size is None else template.size
    late = owner.spec.startup_policy == "LeaderReady" or EXCLUSIVE in owner.metadata.annotations
    policy, block, shift, segment = template.sub_group_policy, 0, 0, NO_SEGMENT
    with_leader = True
    if policy is not None and policy.sub_group_size and policy.sub_group_size > 0:
        # A leader that is one too many for equal parts goes with the first of them, or with none.
        block, segment = policy.sub_group_size, 0
        shift = 0 if (size - 1) % block == 0 else 1
        with_leader = policy.sub_group_policy_type != "LeaderExcluded"
    leader = template.leader_template or template.worker_template
    return (
        Role(_LEADER, min(size, 1), leader, segment=segment if with_leader else NO_SEGMENT),
        Role(
            _WORKERS,
            max(size - 1, 0),
            template.worker_template,
            stage=1 if late else 0,
            block=block,
            segment=segment,
            shift=shift,
        ),
    )


LEADERWORKERSET: Final = Family(
    owners={("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): LeaderWorkerSet},
    gang=_gang,
    marks=frozenset({_NAME}),
    place=_place,
    said=_said,
    rank_alone=_index,
    roles=_roles,
)
