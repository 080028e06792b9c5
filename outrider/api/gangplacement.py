"""GangPlacement: where the planner put the ranks of one gang. Written by the planner."""

from enum import StrEnum
from typing import Annotated

import msgspec

from outrider.api.meta import MESSAGE_MAX, Condition, ObjectMeta, Resource, Root, Timestamp
from outrider.api.names import API_VERSION


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


class GangPlacementSpec(Resource, frozen=True, kw_only=True):
    """Which gang this is."""

    job_kind: Annotated[str, msgspec.Meta(description="Job or PyTorchJob")]
    job_name: Annotated[str, msgspec.Meta(description="the job that owns the gang, in this namespace")]
    job_uid: Annotated[str, msgspec.Meta(description="its UID")]
    size: Annotated[int, msgspec.Meta(ge=1, description="pods that must run together")]


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
    rejected: Annotated[list[RejectedAlternative], msgspec.Meta(max_length=32)] = []
    expires_at: Timestamp | None = None
    traceparent: str = ""
    conditions: list[Condition] = []


class GangPlacement(Root, frozen=True, kw_only=True):
    """Placement of one gang; owned by its job and gone with it."""

    metadata: ObjectMeta
    spec: GangPlacementSpec
    status: GangPlacementStatus = msgspec.field(default_factory=GangPlacementStatus)
    api_version: str = API_VERSION
    kind: str = "GangPlacement"
