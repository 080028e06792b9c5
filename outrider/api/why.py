"""Why a gang waits, as data: what it needs, what there is, and what would have to happen first.

Part of GangPlacement's status; the planner writes it, `outrider why -o json` shows it.
"""

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from outrider.api.meta import MESSAGE_MAX, Resource

STATES_MAX: Final = 16  # states of nodes that are told apart
CAUSES_MAX: Final = 4  # causes named for a state
ENDS_MAX: Final = 8  # gangs named whose end would make room
NOTES_MAX: Final = 8

_Count = Annotated[int, msgspec.Meta(ge=0)]


class WaitReason(StrEnum):
    """Why a gang waits, in one word for programs."""

    NO_ROOM = "NoRoom"  # too few nodes can take its pods now
    NO_ROOM_TOGETHER = "NoRoomTogether"  # enough of them, but not under one domain of the required level
    NEVER_FITS = "NeverFits"  # the nodes could not take it even if all were free and healthy
    MEMBERS_MISSING = "MembersMissing"  # not all of its pods exist
    BEHIND = "BehindOthers"  # it would fit, and others come first


class NodeState(StrEnum):
    """What stands between a node and a pod of the gang."""

    FREE = "Free"
    IN_USE = "InUse"
    RESERVED = "Reserved"  # free, and held for other gangs
    UNHEALTHY = "Unhealthy"
    UNKNOWN_HEALTH = "UnknownHealth"
    QUARANTINED = "Quarantined"
    SUSPECT = "Suspect"  # in a domain under suspicion, which the cause names
    REJECTING = "Rejecting"  # pods fail there as they start
    CORDONED = "Cordoned"
    TAINTED = "Tainted"
    NOT_SELECTED = "NotSelected"  # outside the pods' node selector or affinity
    TRIED = "Tried"  # a pod planned there did not start in time
    SMALLER = "Smaller"  # fewer GPUs than one pod asks for
    SHORT = "Short"  # of something else than GPUs; the cause names it
    OTHER = "Other"  # the cause says it in words


class StateCount(Resource, frozen=True, kw_only=True):
    """Nodes in one state."""

    state: NodeState
    nodes: _Count
    causes: Annotated[
        list[str],
        msgspec.Meta(max_length=CAUSES_MAX, description="such as xid/79, a taint, a resource; most frequent first"),
    ] = []


class BestDomain(Resource, frozen=True, kw_only=True):
    """The domain of the required level that comes nearest to holding the gang."""

    domain: Annotated[str, msgspec.Meta(description="its labels from the top level down")]
    room: Annotated[int, msgspec.Meta(ge=0, description="pods of the gang that fit there now")]
    states: Annotated[list[StateCount], msgspec.Meta(max_length=STATES_MAX)] = []


class Why(Resource, frozen=True, kw_only=True):
    """Why a gang waits. Numbers are about pods that are still to be placed."""

    reason: WaitReason
    pods: Annotated[int, msgspec.Meta(ge=0, description="pods to place")] = 0
    gpus_per_pod: _Count = 0
    whole_nodes: Annotated[bool, msgspec.Meta(description="no node takes two of the pods")] = False
    level: Annotated[str, msgspec.Meta(description="level whose domain must hold all pods; empty: none asked for")] = ""
    segment_pods: Annotated[int, msgspec.Meta(ge=0, description="pods that belong under one segment_level")] = 0
    segment_level: str = ""
    room: Annotated[int, msgspec.Meta(ge=0, description="pods of the gang that fit anywhere now")] = 0
    exist: Annotated[int, msgspec.Meta(ge=0, description="pods that exist, where some are missing")] = 0
    states: Annotated[
        list[StateCount], msgspec.Meta(max_length=STATES_MAX, description="all GPU nodes of the cluster")
    ] = []
    best: BestDomain | None = None
    ends: Annotated[
        list[str],
        msgspec.Meta(max_length=ENDS_MAX, description="gangs whose end makes room first: kind namespace/name"),
    ] = []
    ends_together: Annotated[bool, msgspec.Meta(description="all of them must end; else any one is enough")] = False
    notes: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=MESSAGE_MAX)]],
        msgspec.Meta(max_length=NOTES_MAX, description="what else people should know, such as an unknown size"),
    ] = []
