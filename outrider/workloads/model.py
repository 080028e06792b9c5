"""What is said of a gang: which one it is, how many pods it has, and what each of them is in it."""

import uuid
from functools import lru_cache
from typing import Final

import msgspec

from outrider.api.core import Owner, PodSpec
from outrider.api.meta import OwnerReference

NO_SEGMENT: Final = -1
BEFORE: Final = -1  # stage of a pod that ends before its gang starts: placed on its own, no part of the gang's size
_NAMES: Final = uuid.UUID("6f7a1c2e-58d4-5c0e-9b7e-0b6d6f757472")  # makes our UIDs of names differ from anyone else's


class GangRef(msgspec.Struct, frozen=True):
    """Names a gang. ``name`` is that of the object the gang comes from, or what the pods call it where there is none.

    ``part`` tells gangs of one object apart (the groups of a LeaderWorkerSet). ``owned`` is False where ``uid`` is no
    object's: then it is made of kind, namespace, name and part, so that every process gets the same.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    owned: bool = True
    part: str = ""

    @property
    def group(self) -> str:
        """API group of the kind, empty for Kubernetes' core."""
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        """Return the gang as people say it."""
        return f"{self.kind} {self.name}" + (f", group {self.part}" if self.part else "")


class Size(msgspec.Struct, frozen=True):
    """Pods of a gang that must run together; ``pods`` is 0 where ``unknown`` says why it can't be told.

    ``min`` are those with which an elastic gang may start (0: all); ``note`` says in plain words what did not fit
    together in what the pods and their owner say, and what holds instead.
    """

    pods: int
    unknown: str = ""
    min: int = 0
    note: str = ""

    @property
    def least(self) -> int:
        """Pods without which the gang does not start."""
        return self.min or self.pods


class Seat(msgspec.Struct, frozen=True):
    """One pod's part in its gang. Pods of a lower ``stage`` must be scheduled before those of a higher one exist.

    ``segment`` numbers the pods that belong together (NO_SEGMENT: by the topology ask, else none). ``pod`` is the spec
    that the controller will create the pod from, None where that is not known.
    """

    rank: int
    role: str = ""
    stage: int = 0
    segment: int = NO_SEGMENT
    pod: PodSpec | None = None


@lru_cache(maxsize=4096)
def named(api_version: str, kind: str, namespace: str, name: str, part: str = "") -> GangRef:
    """Return a gang that is known by its name only."""
    text = "\0".join((api_version.rpartition("/")[0], kind, namespace, name, part))
    return GangRef(api_version, kind, name, str(uuid.uuid5(_NAMES, text)), owned=False, part=part)


def owner_reference(gang: GangRef, owner: Owner | None) -> OwnerReference | None:
    """Return what makes an object go with its gang's owner, None while no such owner is known."""
    uid = gang.uid if gang.owned else owner.metadata.uid if owner else ""
    return (
        OwnerReference(api_version=gang.api_version, kind=gang.kind, name=gang.name, uid=uid, controller=True)
        if uid
        else None
    )
