"""From a pod to the gang it is of, its place there, and the gang's size: the doors to the table of kinds."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from outrider.api.core import Owner, Pod
from outrider.api.names import JOB_UID_LABEL
from outrider.api.podgroups import PodGroup
from outrider.workloads.asks import topology_ask
from outrider.workloads.kinds import annotated, controller_of, family_of, family_of_owner, owner_type
from outrider.workloads.kinds.family import Family, Place, Said
from outrider.workloads.kinds.roles import Role, rank_in, role_named, seats
from outrider.workloads.membership import is_member
from outrider.workloads.model import BEFORE, NO_SEGMENT, GangRef, Seat, Size

OwnerKey = tuple[type[Owner], str, str]
_MOST: Final = 16384  # ranks that a GangPlacement holds


def gang_of(pod: Pod) -> GangRef | None:
    """Return the gang that the pod is of, None for a pod on its own. It needs nothing but the pod."""
    known = family_of(pod)
    return known[1] if known else None


def may_be_gated(pod: Pod) -> bool:
    """Return whether the pod is certainly one of a gang whose size can be known, so that it may wait for its plan."""
    known = family_of(pod)
    return known is not None and (known[0].gated(pod) or annotated.sized(pod))


def doubts(pod: Pod) -> list[str]:
    """Return in plain words what of a pod's gang and topology annotations makes no sense, for whoever creates it."""
    known = family_of(pod)
    wrong = _said(pod).wrong if known and not may_be_gated(pod) else ""
    _, problem = topology_ask([pod])
    return [text for text in (f"{wrong}: it is placed as a single pod" if wrong else "", problem) if text]


def owner_key(gang: GangRef, namespace: str) -> OwnerKey | None:
    """Return the key of the object that the gang comes from, None where there is no such object."""
    owner = owner_type(gang)
    return (owner, namespace, gang.name) if owner else None


def key_of_owner(owner: Owner) -> OwnerKey:
    """Return the key of an object that gangs come from."""
    return type(owner), owner.metadata.namespace, owner.metadata.name


def owns(owner: Owner, gang: GangRef) -> bool:
    """Return whether the object of the gang's name is the gang's own, not one that was created later by that name."""
    return not gang.owned or owner.metadata.uid == gang.uid


def job_uid_of(pod: Pod) -> str:
    """Return the UID of the gang that admission found the pod to be of, empty for none."""
    return pod.metadata.labels.get(JOB_UID_LABEL, "")


def rank_of(pod: Pod, owner: Owner | None = None) -> int | None:
    """Return the pod's place in its gang, None where its controller numbers no pods (a Job that is not Indexed).

    Ranks follow the owner's order of roles. Without the owner at hand they follow what is usual: one leading replica,
    then the workers. A number that is no number is treated as absent.
    """
    own = annotated.rank(pod)
    family = controller_of(pod) or _group_of(pod)
    if own is not None or family is None:
        return own
    roles = _roles(family, owner)
    if not roles:
        return family.rank_alone(pod)
    place = family.place(pod)
    role = role_named(roles, place.role)
    index = _index(place, role) if role else None
    return None if index is None or role is None or role.stage == BEFORE else rank_in(roles, role.name, index)


def role_of(pod: Pod) -> str:
    """Return what its controller calls the pod's part in the gang, such as worker; empty where it has no name."""
    family = controller_of(pod)
    return family.place(pod).role if family else ""


def stage_of(pod: Pod, owner: Owner | None = None) -> int:
    """Return the pod's stage: those of stage 0 come first, and of a higher one once the lower ones are scheduled.

    BEFORE is the stage of pods that end before the gang starts: they are placed on their own.
    """
    if not any(role.stage or role.led for role in _roles_of(owner)):
        return 0
    role, index = _seat(pod, owner)
    if role is None:
        return 0
    return role.stage if index is None or role.stage == BEFORE else role.stage_of(index)


def segment_of(pod: Pod, owner: Owner | None = None) -> int:
    """Return the number of the part of the gang whose pods belong together, NO_SEGMENT where the owner makes none."""
    if all(role.segment == NO_SEGMENT for role in _roles_of(owner)):
        return NO_SEGMENT
    role, index = _seat(pod, owner)
    return NO_SEGMENT if role is None or index is None else role.segment_of(index)


def seats_of(gang: GangRef, owner: Owner | None) -> tuple[Seat, ...]:
    """Return the gang's pods as its owner will create them, those that exist included; none where that is unknown."""
    size = _by_owner(owner)
    if owner is None or owner_type(gang) is not type(owner) or size is None or size.unknown:
        return ()
    return tuple(seats(_read_roles(_This(owner))))


def size_of(owner: Owner | None, pods: Sequence[Pod] = ()) -> Size:
    """Return how many pods of the gang run together: by its owner, else by what its pods say.

    Pods that disagree: the largest number holds, so that no gang starts without a pod that some of them wait for. Pods
    that are there beyond the number asked for count, too. Both are said in ``note``.
    """
    known = _by_owner(owner)
    told, note = _told([_said(pod) for pod in pods])
    if known is not None and not known.unknown:
        return _with_those_there(known, note, owner, pods)
    if 0 < told.pods <= _MOST:
        return _with_those_there(Size(told.pods, min=told.min), note, owner, pods)
    if told.pods:
        return _too_many(told.pods)
    unknown = known.unknown if known else told.wrong or "the job that owns the pod is not known yet"
    return Size(0, unknown)


def priority_of(pods: Sequence[Pod], owner: Owner | None = None) -> tuple[int, str]:
    """Return the gang's priority, and in plain words how its pods disagree on it (empty: they do not).

    A PodGroup's own priority holds (KEP-5710); else the highest of its pods', since that one waits for all the others.
    """
    if isinstance(owner, PodGroup) and owner.spec.priority is not None:
        return owner.spec.priority, ""
    known = sorted({pod.spec.priority or 0 for pod in pods if is_member(pod)})
    if len(known) < 2:
        return next(iter(known), 0), ""
    return known[-1], f"its pods have priorities from {known[0]} to {known[-1]}; the highest holds for all"


def _group_of(pod: Pod) -> Family[Any] | None:
    known = family_of(pod)
    return known[0] if known else None


def _by_owner(owner: Owner | None) -> Size | None:
    family = family_of_owner(owner) if owner is not None else None
    size = family.size_of(owner) if family else None
    return _too_many(size.pods) if size is not None and size.pods > _MOST else size


def _too_many(pods: int) -> Size:
    return Size(0, f"it asks for {pods} pods, and no gang may have more than {_MOST}")


def _said(pod: Pod) -> Said:
    own, known = annotated.said(pod), family_of(pod)
    return own if own.pods or own.wrong or known is None else known[0].said(pod)


def _told(statements: Sequence[Said]) -> tuple[Said, str]:
    """Return what holds of the pods' statements, and how they disagree."""
    sizes = Counter(one.pods for one in statements if one.pods)
    wrong = next((one.wrong for one in statements if one.wrong), "")
    if not sizes:
        return Said(wrong=wrong), ""
    largest = max(sizes)
    least = max(one.min for one in statements if one.pods == largest)
    note = f"its pods disagree on its size ({_listed(sizes)}); the largest holds" if len(sizes) > 1 else ""
    return Said(largest, least), note


def _listed(sizes: Counter[int]) -> str:
    return ", ".join(f"{size} say {count}" for count, size in sorted(sizes.items())[:4])


def _with_those_there(size: Size, note: str, owner: Owner | None, pods: Sequence[Pod]) -> Size:
    there = sum(not pod.finished and is_member(pod) and stage_of(pod, owner) != BEFORE for pod in pods)
    if there <= size.pods:
        return msgspec.structs.replace(size, note=note)
    family = family_of(pods[0])
    if family is not None and family[0].open_ended:
        return Size(there, min=size.min or size.pods, note=note)
    extra = f"{there} pods are there, though {size.pods} were asked for: all of them count"
    return Size(there, min=size.min, note="; ".join(filter(None, (note, extra))))


def _roles(family: Family[Any] | None, owner: Owner | None) -> tuple[Role, ...]:
    if family is None or owner is None or family_of_owner(owner) is not family:
        return ()
    return _read_roles(_This(owner))


def _roles_of(owner: Owner | None) -> tuple[Role, ...]:
    return () if owner is None else _read_roles(_This(owner))


class _This:
    """An owner as a key: it stands for itself only, never for an equal one."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _This) and self.owner is other.owner

    def __hash__(self) -> int:
        return id(self.owner)


@lru_cache(maxsize=256)
def _read_roles(this: _This) -> tuple[Role, ...]:
    """Return the owner's roles, read once for all the pods of its gang."""
    family = family_of_owner(this.owner)
    return family.roles(this.owner) if family else ()


def _seat(pod: Pod, owner: Owner | None) -> tuple[Role | None, int | None]:
    family = controller_of(pod)
    roles = _roles(family, owner)
    if family is None or not roles:
        return None, None
    place = family.place(pod)
    role = role_named(roles, place.role)
    return role, _index(place, role) if role else None


def _index(place: Place, role: Role) -> int | None:
    return None if place.index is None else place.block * role.block + place.index
