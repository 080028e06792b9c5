"""GangPlacement: where the planner put the ranks of one gang. Written by the planner."""

from enum import StrEnum
from typing import Annotated

import msgspec

from outrider.api.meta import MESSAGE_MAX, Condition, ObjectMeta, Resource, Root, Timestamp
from outrider.api.names import API_VERSION
from outrider.api.why import Why


class PlacementState(StrEnum):
    """Life of a placement."""

    WAITING = "Waiting"  # members missing, or nothing fits; message says which
    PLANNED = "Planned"  # nodes reserved, gates being lifted
    PLACED = "Placed"  # every rank bound


class RankAssignment(Resource, frozen=True, kw_only=True):
    """One rank's node."""

    rank: Annotated[int, msgspec.Meta(ge=0)]
    pod: Annotated[str, msgspec.Meta(description="name of the pod")]
    pod_uid: str
    node: str
    gpus: Annotated[int, msgspec.Meta(ge=0, description="GPUs the pod asks for")] = 0


class RejectedAlternative(Resource, frozen=True, kw_only=True):
    """A domain that was looked at and not taken, for explanations."""

    domain: str
    reason: str


class Reservation(Resource, frozen=True, kw_only=True):
    """Room held for pods of one shape: of a waiting gang on nodes that others will free, or of pods still to come."""

    requests: Annotated[dict[str, str], msgspec.Meta(description="what one of the pods takes of its node")] = {}
    ranks: Annotated[list[int], msgspec.Meta(max_length=16384, description="ranks of the pods")] = []
    nodes: Annotated[list[str], msgspec.Meta(max_length=16384, description="node of each of the ranks")] = []


class Victim(Resource, frozen=True, kw_only=True):
    """A gang that makes room for this one: all its pods are evicted."""

    job_kind: str
    job_name: str
    job_uid: str
    namespace: str
    priority: int = 0
    lost_seconds: Annotated[
        float, msgspec.Meta(ge=0, description="training time since its last checkpoint, which is done again")
    ] = 0.0
    lost_gpu_seconds: Annotated[float, msgspec.Meta(ge=0, description="the same, times its GPUs")] = 0.0
    pods: Annotated[list[str], msgspec.Meta(max_length=16384, description="names of the pods")] = []
    pod_uids: Annotated[list[str], msgspec.Meta(max_length=16384, description="UID of each of them")] = []


class GangPlacementSpec(Resource, frozen=True, kw_only=True):
    """Which gang this is."""

    job_kind: Annotated[
        str, msgspec.Meta(description="kind that the gang comes from, such as JobSet; Gang: by annotations")
    ]
    job_name: Annotated[str, msgspec.Meta(description="name of that object, or of the gang, in this namespace")]
    job_uid: Annotated[str, msgspec.Meta(description="UID of that object, or one made of the gang's name")]
    size: Annotated[int, msgspec.Meta(ge=1, description="pods that must run together")]
    owned: Annotated[
        bool, msgspec.Meta(description="false: no object owns the gang; its placement goes when its last pod does")
    ] = True


class GangPlacementStatus(Resource, frozen=True, kw_only=True):
    """The plan. ``revision`` grows by one with each new plan and fences concurrent planners."""

    state: PlacementState = PlacementState.WAITING
    revision: Annotated[int, msgspec.Meta(ge=0, description="grows by one with each new plan")] = 0
    message: Annotated[
        str, msgspec.Meta(max_length=MESSAGE_MAX, description="what it waits for, or where it was placed")
    ] = ""
    domain: Annotated[str, msgspec.Meta(description="smallest topology domain that holds the gang")] = ""
    ranks: Annotated[list[RankAssignment], msgspec.Meta(max_length=16384)] = []
    spares: Annotated[
        list[str], msgspec.Meta(description="healthy nodes near the gang, for a rank that has to move")
    ] = []
    spares_kept: Annotated[bool, msgspec.Meta(description="no other gang is planned on the spares")] = False
    rejected: Annotated[list[RejectedAlternative], msgspec.Meta(max_length=32)] = []
    expires_at: Timestamp | None = None
    why: Annotated[Why | None, msgspec.Meta(description="why it waits, as data")] = None
    priority: Annotated[int | None, msgspec.Meta(description="highest priority of its pods")] = None
    queued_at: Annotated[Timestamp | None, msgspec.Meta(description="since when the gang waits for its nodes")] = None
    reservations: Annotated[
        list[Reservation], msgspec.Meta(max_length=64, description="room held for pods that have no node yet")
    ] = []
    preempting: Annotated[list[Victim], msgspec.Meta(max_length=64, description="gangs that make room for it")] = []
    attempts: Annotated[int, msgspec.Meta(ge=0, description="plans in a row that did not bind")] = 0
    retry_at: Annotated[Timestamp | None, msgspec.Meta(description="when it is planned again")] = None
    traceparent: str = ""
    conditions: list[Condition] = []


class GangPlacement(Root, frozen=True, kw_only=True):
    """Placement of one gang; owned by its job and gone with it."""

    metadata: ObjectMeta
    spec: GangPlacementSpec
    status: GangPlacementStatus = msgspec.field(default_factory=GangPlacementStatus)
    api_version: str = API_VERSION
    kind: str = "GangPlacement"
