"""What a family of job controllers tells of its gangs: the questions, and the answers where a family has none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from outrider.api.core import Owner, Pod
from outrider.workloads.kinds.roles import Role, size_from
from outrider.workloads.model import GangRef, Size

T = TypeVar("T", bound=Owner)
_DIGITS: Final = 9  # no gang has a thousand million pods


class Place(msgspec.Struct, frozen=True):
    """A pod's place in its role: the number of its block there (the child job, the host group) and within that."""

    role: str = ""
    index: int | None = None
    block: int = 0


class Said(msgspec.Struct, frozen=True):
    """What a pod alone says of its gang's size: 0 pods where it says nothing, or (``wrong``) what makes no sense."""

    pods: int = 0
    min: int = 0
    wrong: str = ""


SILENT: Final = Said()


def _nowhere(_: Pod) -> Place:
    return Place()


def _silent(_: Pod) -> Said:
    return SILENT


def _unnumbered(_: Pod) -> int | None:
    return None


def _always(_: Pod) -> bool:
    return True


def _alike(_: Owner) -> tuple[Role, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Family(Generic[T]):
    """Functions that read the pods and owners of one family of controllers.

    ``owners``: the kinds that own its gangs, by API group and kind. ``gang`` names a pod's gang, None where the pod is
    of another family; it goes by the pod's controller, or by the labels and annotations ``marks``. ``place``, ``said``
    and ``rank_alone`` read a pod by itself, the last without knowing its owner. ``roles`` lists what an owner creates,
    in rank order, and ``size`` counts it. ``gated``: whether a pod is a gang's for certain, so that it may wait at a
    gate. ``open_ended``: a size is the least, and more pods may come.
    """

    owners: Mapping[tuple[str, str], type[T]]
    gang: Callable[[Pod], GangRef | None]
    marks: frozenset[str] = frozenset()
    place: Callable[[Pod], Place] = _nowhere
    said: Callable[[Pod], Said] = _silent
    rank_alone: Callable[[Pod], int | None] = _unnumbered
    roles: Callable[[T], tuple[Role, ...]] = _alike
    size: Callable[[T], Size] | None = None
    gated: Callable[[Pod], bool] = _always
    open_ended: bool = False

    def size_of(self, owner: T) -> Size:
        """Return the gang's size by its owner."""
        return self.size(owner) if self.size else size_from(self.roles(owner))


def kind_of_controller(pod: Pod) -> tuple[str, str]:
    """Return API group and kind of the pod's controller, both empty for a pod without one."""
    owner = pod.metadata.controller()
    return (owner.api_version.rpartition("/")[0], owner.kind) if owner else ("", "")


def controlled_by(pod: Pod, owners: Mapping[tuple[str, str], type[T]]) -> GangRef | None:
    """Return the pod's controller as its gang where it is one of these kinds."""
    owner = pod.metadata.controller()
    if owner is None or (owner.api_version.rpartition("/")[0], owner.kind) not in owners:
        return None
    return GangRef(owner.api_version, owner.kind, owner.name, owner.uid)


def number(text: str | None) -> int | None:
    """Return a label's text as a number from 0, None where it is none."""
    return int(text) if text and len(text) <= _DIGITS and text.isascii() and text.isdigit() else None


def ordinal(name: str) -> int | None:
    """Return the number at the end of the name of a StatefulSet's pod."""
    return number(name.rpartition("-")[2])
