"""The families of job controllers whose pods form gangs; the first that knows a pod says which gang it is of."""

from collections.abc import Mapping
from typing import Any, Final

from outrider.api.core import Owner, Pod
from outrider.workloads.kinds.annotated import ANNOTATED
from outrider.workloads.kinds.family import Family, kind_of_controller
from outrider.workloads.kinds.jobs import JOB, STATEFULSET
from outrider.workloads.kinds.jobset import JOBSET
from outrider.workloads.kinds.kubeflow import KUBEFLOW
from outrider.workloads.kinds.leaderworkerset import LEADERWORKERSET
from outrider.workloads.kinds.podgroups import COSCHEDULING, KAI, KUEUE, NATIVE, VOLCANO
from outrider.workloads.kinds.ray import RAY
from outrider.workloads.kinds.volcano import VOLCANO_JOB
from outrider.workloads.model import GangRef

# People's own word comes first; then what the pod's spec says; then controllers that know sizes, ranks and stages;
# then groups that were put around pods of any owner; last the controllers that such groups are put around.
FAMILIES: Final[tuple[Family[Any], ...]] = (
    ANNOTATED,
    NATIVE,
    LEADERWORKERSET,
    JOBSET,
    KUBEFLOW,
    RAY,
    VOLCANO_JOB,
    KUEUE,
    COSCHEDULING,
    KAI,
    VOLCANO,
    STATEFULSET,
    JOB,
)
CONTROLLERS: Final[tuple[Family[Any], ...]] = (
    LEADERWORKERSET,
    JOBSET,
    KUBEFLOW,
    RAY,
    VOLCANO_JOB,
    STATEFULSET,
    JOB,
)
_OWNERS: Final[Mapping[tuple[str, str], type[Owner]]] = {
    key: owner for family in FAMILIES for key, owner in family.owners.items()
}
_BY_OWNER: Final[Mapping[type[Owner], Family[Any]]] = {
    owner: family for family in FAMILIES for owner in family.owners.values()
}
# Pods of these are replaced one by one and serve each for itself, whatever else is written on them.
_NEVER: Final = frozenset({("apps", "ReplicaSet"), ("apps", "DaemonSet")})
_MARKS: Final = frozenset().union(*(family.marks for family in FAMILIES))
_BY_CONTROLLER: Final[Mapping[tuple[str, str], Family[Any]]] = {
    key: family for family in CONTROLLERS for key in family.owners if family not in (LEADERWORKERSET, JOBSET)
}


def family_of(pod: Pod) -> tuple[Family[Any], GangRef] | None:
    """Return the family that knows the pod, and its gang; None for a pod on its own."""
    key = kind_of_controller(pod)
    if key in _NEVER:
        return None
    likely = FAMILIES if _marked(pod) else (_BY_CONTROLLER[key],) if key in _BY_CONTROLLER else ()
    known = ((family, family.gang(pod)) for family in likely)
    return next(((family, gang) for family, gang in known if gang is not None), None)


def controller_of(pod: Pod) -> Family[Any] | None:
    """Return the family of the controller that made the pod: it numbers the pods, whoever else grouped them."""
    if not _marked(pod):
        return _BY_CONTROLLER.get(kind_of_controller(pod))
    return next((family for family in CONTROLLERS if family.gang(pod) is not None), None)


def _marked(pod: Pod) -> bool:
    """Return whether the pod may be of a family that does not go by the controller; most pods are of none."""
    meta = pod.metadata
    if pod.spec.scheduling_group is not None:
        return True
    return not (_MARKS.isdisjoint(meta.labels) and _MARKS.isdisjoint(meta.annotations))


def family_of_owner(owner: Owner) -> Family[Any] | None:
    """Return the family that the owner is of."""
    return _BY_OWNER.get(type(owner))


def owner_type(gang: GangRef) -> type[Owner] | None:
    """Return the kind of object that a gang comes from, None where there is no such object."""
    return _OWNERS.get((gang.group, gang.kind))
