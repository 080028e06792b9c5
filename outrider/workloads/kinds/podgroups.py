"""Gangs that are groups of pods: Kubernetes' PodGroup, Kueue's pod groups, and those of other gang schedulers.

Kubernetes: Pod.spec.schedulingGroup (KEP-4671). Kueue: docs, "Run a group of plain pods". scheduler-plugins:
apis/scheduling/v1alpha1/types.go and, before 0.25, the labels of KEP-42. KAI and Volcano: annotations of their pod
groupers.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from outrider.api.core import Pod
from outrider.api.podgroups import CoschedulingPodGroup, KaiPodGroup, MemberGroup, PodGroup, VolcanoPodGroup
from outrider.workloads.kinds.family import SILENT, Family, Said, number
from outrider.workloads.model import GangRef, Size, named

G = TypeVar("G", bound=MemberGroup)

_KUEUE_NAME: Final = "kueue.x-k8s.io/pod-group-name"
_KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
_KUEUE_INDEX: Final = "kueue.x-k8s.io/pod-group-pod-index"
_COSCHEDULING_NAMES: Final = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)
_COSCHEDULING_MIN: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
_KAI_NAMES: Final = ("pod-group-name",)
_VOLCANO_NAMES: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


def _native_gang(pod: Pod) -> GangRef | None:
    group = pod.spec.scheduling_group
    if group is None or not group.pod_group_name:
        return None
    return named("scheduling.k8s.io/v1beta1", "PodGroup", pod.metadata.namespace, group.pod_group_name)


def _native_size(group: PodGroup) -> Size:
    gang = group.spec.scheduling_policy.gang
    if gang is None:
        return Size(0, "its PodGroup has the basic policy, so that its pods need not run together")
    return Size(gang.min_count) if gang.min_count > 0 else Size(0, "its PodGroup has no minCount")


def _group_size(group: MemberGroup) -> Size:
    pods = group.spec.min_member or 0
    return Size(pods) if pods > 0 else Size(0, "its PodGroup has no minMember")


def _kueue_gang(pod: Pod) -> GangRef | None:
    return _labelled(pod, "kueue.x-k8s.io/v1beta1", (_KUEUE_NAME,))


def _kueue_said(pod: Pod) -> Said:
    return stated(pod.metadata.annotations.get(_KUEUE_COUNT), _KUEUE_COUNT)


def _kueue_rank(pod: Pod) -> int | None:
    return number(pod.metadata.labels.get(_KUEUE_INDEX))


def _counted_by_kueue(pod: Pod) -> bool:
    return _kueue_said(pod).pods > 0


def _coscheduling_said(pod: Pod) -> Said:
    text = pod.metadata.labels.get(_COSCHEDULING_MIN)
    return SILENT if text is None else stated(text, _COSCHEDULING_MIN)


def stated(text: str | None, where: str) -> Said:
    """Return a number of pods that a pod's label or annotation states."""
    if text is None:
        return Said(wrong=f"{where} is missing on its pods")
    pods = number(text)
    return Said(pods) if pods else Said(wrong=f"{where}: {text[:64]!r} is no number of pods")


def _labelled(pod: Pod, api_version: str, names: tuple[str, ...]) -> GangRef | None:
    known = pod.metadata.annotations | pod.metadata.labels
    name = next((known[name] for name in names if known.get(name)), "")
    return named(api_version, "PodGroup", pod.metadata.namespace, name) if name else None


def _by_members(
    owner: type[G], api_version: str, names: tuple[str, ...], said: Callable[[Pod], Said] = lambda _: SILENT
) -> Family[G]:
    return Family(
        owners={(api_version.rpartition("/")[0], "PodGroup"): owner},
        gang=lambda pod: _labelled(pod, api_version, names),
        marks=frozenset(names),
        said=said,
        size=_group_size,
        open_ended=True,
    )


NATIVE: Final = Family(
    owners={("scheduling.k8s.io", "PodGroup"): PodGroup},
    gang=_native_gang,
    size=_native_size,
    open_ended=True,
)
KUEUE: Final[Family[MemberGroup]] = Family(
    owners={},
    gang=_kueue_gang,
    marks=frozenset({_KUEUE_NAME}),
    said=_kueue_said,
    rank_alone=_kueue_rank,
    gated=_counted_by_kueue,
)
COSCHEDULING: Final = _by_members(
    CoschedulingPodGroup, "scheduling.x-k8s.io/v1alpha1", _COSCHEDULING_NAMES, _coscheduling_said
)
KAI: Final = _by_members(KaiPodGroup, "scheduling.run.ai/v2alpha2", _KAI_NAMES)
VOLCANO: Final = _by_members(VolcanoPodGroup, "scheduling.volcano.sh/v1beta1", _VOLCANO_NAMES)
