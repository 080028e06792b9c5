"""What a gang asks of the network, from its pods' annotations, its owner's, and its PodGroup.

Besides Outrider's own annotations those of Kueue (KEP-2724, apis/kueue topology annotations), KAI (docs/topology),
JobSet and LeaderWorkerSet hold, so that a job that was written for them is placed as it asks. People's own word for us
comes first.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.core import Owner, Pod
from outrider.api.names import (
    PREFERRED_LEVEL_ANNOTATION,
    REQUIRED_LEVEL_ANNOTATION,
    SEGMENT_LEVEL_ANNOTATION,
    SEGMENT_PODS_ANNOTATION,
)
from outrider.api.podgroups import PodGroup
from outrider.topology import TopologyAsk
from outrider.workloads.kinds import jobset, leaderworkerset
from outrider.workloads.kinds.family import number
from outrider.workloads.membership import is_member

_REQUIRED: Final = (
    REQUIRED_LEVEL_ANNOTATION,
    "kueue.x-k8s.io/podset-required-topology",
    "kai.scheduler/topology-required-placement",
    leaderworkerset.EXCLUSIVE,
)
_PREFERRED: Final = (
    PREFERRED_LEVEL_ANNOTATION,
    "kueue.x-k8s.io/podset-preferred-topology",
    "kai.scheduler/topology-preferred-placement",
)
_KUEUE_SLICE_LEVEL: Final = "kueue.x-k8s.io/podset-slice-required-topology"
_KUEUE_SLICE_PODS: Final = "kueue.x-k8s.io/podset-slice-size"
_READ: Final = (
    *_REQUIRED,
    *_PREFERRED,
    SEGMENT_PODS_ANNOTATION,
    SEGMENT_LEVEL_ANNOTATION,
    _KUEUE_SLICE_LEVEL,
    _KUEUE_SLICE_PODS,
    jobset.EXCLUSIVE,
    leaderworkerset.SUBGROUP_EXCLUSIVE,
    leaderworkerset.SUBGROUP_SIZE,
)
_LONGEST: Final = 316  # characters of a label's key: a domain of 253, a slash, a name of 63 (apimachinery validation)


class _Segments(msgspec.Struct, frozen=True):
    """One way to ask for segments. Without a number of pods the owner says which pods are one."""

    level: str
    pods: str = ""
    required: bool = True
    exclusive: bool = False

    @property
    def alone(self) -> set[str]:
        """What makes no sense without the level. A LeaderWorkerSet has subgroups for other reasons, too."""
        return set() if self.exclusive else {self.pods}


_SEGMENTS: Final = (
    _Segments(SEGMENT_LEVEL_ANNOTATION, SEGMENT_PODS_ANNOTATION, required=False),
    _Segments(_KUEUE_SLICE_LEVEL, _KUEUE_SLICE_PODS),
    _Segments(jobset.EXCLUSIVE, exclusive=True),
    _Segments(leaderworkerset.SUBGROUP_EXCLUSIVE, leaderworkerset.SUBGROUP_SIZE, exclusive=True),
)


def topology_ask(pods: Sequence[Pod], owner: Owner | None = None) -> tuple[TopologyAsk, str]:
    """Return how close the gang's pods must be, and in plain words what of it makes no sense (empty: all does).

    What makes no sense is left out of the ask. Where pods disagree, what most of them say holds. Whether the cluster
    has such a level is not known here.
    """
    said, problems = _said([pod for pod in pods if is_member(pod)], owner)
    required = _native_level(owner) or _first(said, _REQUIRED)
    ask = TopologyAsk(required_level=required, preferred_level=_first(said, _PREFERRED))
    segments = [_segmented(ask, said, one) for one in _SEGMENTS if one.level in said or one.alone & said.keys()]
    problems += [problem for _, problem in segments if problem]
    ask = next((with_segments for with_segments, problem in segments if not problem), ask)
    return ask, "; ".join(problems)


def _said(pods: Sequence[Pod], owner: Owner | None) -> tuple[dict[str, str], list[str]]:
    """Return what holds of each annotation, and what makes no sense of them."""
    said = {name: text for name, text in (owner.metadata.annotations if owner else {}).items() if name in _READ}
    problems = []
    for name in _READ:
        texts = Counter(text for pod in pods if (text := pod.metadata.annotations.get(name)))
        if texts:
            said[name] = min(texts, key=lambda text: (-texts[text], text))
        if len(texts) > 1:
            problems.append(f"pods disagree on {name}; {said[name][:64]!r} holds, as most of them say")
    wrong = [name for name, text in said.items() if len(text) > _LONGEST]
    problems += [f"{name}: no level has so long a name" for name in wrong]
    return {name: text for name, text in said.items() if text and name not in wrong}, problems


def _first(said: Mapping[str, str], names: Sequence[str]) -> str:
    return next((said[name] for name in names if name in said), "")


def _native_level(owner: Owner | None) -> str:
    """Return the topology constraint of a Kubernetes PodGroup (KEP-5732)."""
    constraints = owner.spec.scheduling_constraints if isinstance(owner, PodGroup) else None
    return next((one.key for one in constraints.topology if one.key), "") if constraints else ""


def _segmented(ask: TopologyAsk, said: Mapping[str, str], segments: _Segments) -> tuple[TopologyAsk, str]:
    problem = next(_wrong(said, segments), "")
    asked = msgspec.structs.replace(
        ask,
        segment_pods=number(said.get(segments.pods)) or 0,
        segment_level=said.get(segments.level, ""),
        segment_required=segments.required,
        segment_exclusive=segments.exclusive,
    )
    return (ask if problem else asked), problem


def _wrong(said: Mapping[str, str], segments: _Segments) -> Iterator[str]:
    level, pods = said.get(segments.level), said.get(segments.pods)
    if level is None:
        yield f"{segments.pods} stands without {segments.level}: say in which level so many pods belong together"
    elif segments.pods and pods is None:
        yield f"{segments.level} stands without {segments.pods}: say how many pods belong together"
    elif pods is not None and not number(pods):
        yield f"{segments.pods}: {pods[:64]!r} is no number of pods"
