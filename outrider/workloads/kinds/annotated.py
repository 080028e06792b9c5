"""Plain pods, or pods of any owner, that people made a gang of by Outrider's own annotations."""

from typing import Final

from outrider.api.core import Owner, Pod
from outrider.api.names import (
    API_VERSION,
    GANG_ANNOTATION,
    GANG_MIN_ANNOTATION,
    GANG_RANK_ANNOTATION,
    GANG_SIZE_ANNOTATION,
)
from outrider.workloads.kinds.family import SILENT, Family, Said, number
from outrider.workloads.model import GangRef, named


def _gang(pod: Pod) -> GangRef | None:
    name = pod.metadata.annotations.get(GANG_ANNOTATION)
    return named(API_VERSION, "Gang", pod.metadata.namespace, name) if name else None


def said(pod: Pod) -> Said:
    """Return what the annotations say of the gang's size. They may stand on the pods of any kind of gang."""
    annotations = pod.metadata.annotations
    text = annotations.get(GANG_SIZE_ANNOTATION)
    if text is None and GANG_ANNOTATION not in annotations:
        return SILENT
    if text is None:
        return Said(wrong=f"{GANG_SIZE_ANNOTATION} is missing on its pods")
    pods, least = number(text), number(annotations.get(GANG_MIN_ANNOTATION))
    if not pods:
        return Said(wrong=f"{GANG_SIZE_ANNOTATION}: {text[:64]!r} is no number of pods")
    return Said(pods, least if least and least < pods else 0)


def rank(pod: Pod) -> int | None:
    """Return the rank that an annotation gives the pod."""
    return number(pod.metadata.annotations.get(GANG_RANK_ANNOTATION))


def sized(pod: Pod) -> bool:
    """Return whether the annotations tell a size."""
    return said(pod).pods > 0


ANNOTATED: Final[Family[Owner]] = Family(
    owners={}, gang=_gang, marks=frozenset({GANG_ANNOTATION}), said=said, rank_alone=rank, gated=sized
)
