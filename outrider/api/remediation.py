"""Remediation: one episode, on one node or about one domain that many nodes share. People cancel it by spec."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from outrider.api.gpunode import Score
from outrider.api.meta import MESSAGE_MAX, Condition, ObjectMeta, Resource, Root, Timestamp
from outrider.api.names import API_VERSION

PROOF_MAX: Final = 512  # characters of a step's proof
DOMAIN_NODES_MAX: Final = 256  # nodes shown by name for a domain


class ActionMode(StrEnum):
    """How far remediation goes."""

    OBSERVE = "observe"  # records the episode, changes nothing
    DRY_RUN = "dryRun"  # as observe, and events say what enforce would do
    ENFORCE = "enforce"


class StepName(StrEnum):
    """Rungs of the ladder, in order."""

    ISOLATE = "isolate"
    CHECKPOINT = "checkpoint"
    MOVE = "move"
    RESUME = "resume"


class StepState(StrEnum):
    """Outcome of one rung."""

    RUNNING = "Running"
    DONE = "Done"
    EXPIRED = "Expired"  # its bounded wait ended; the ladder goes on
    SKIPPED = "Skipped"


class Phase(StrEnum):
    """State of the whole episode."""

    OPEN = "Open"
    ISOLATED = "Isolated"  # all jobs moved; the node stays tainted until it is repaired
    CANCELLED = "Cancelled"
    RESOLVED = "Resolved"  # the evidence is gone, or a wider domain explains it


class Step(Resource, frozen=True, kw_only=True):
    """One rung with its times and proof."""

    name: StepName
    state: StepState
    started_at: Timestamp
    finished_at: Timestamp | None = None
    proof: Annotated[str, msgspec.Meta(max_length=PROOF_MAX, description="what shows that the rung did its work")] = ""


class AffectedJob(Resource, frozen=True, kw_only=True):
    """A job with ranks on the sick node."""

    namespace: str
    name: str
    uid: str
    pods: Annotated[list[str], msgspec.Meta(description="names of its pods on the node when the episode began")] = []
    pod_uids: Annotated[list[str], msgspec.Meta(description="their UIDs, in the same order")] = []
    ranks: Annotated[list[int], msgspec.Meta(description="their ranks, in the same order; -1 where unknown")] = []
    checkpoint_request: Annotated[
        str, msgspec.Meta(description="id of the request its ranks answer; another episode's where that one came first")
    ] = ""
    reports_steps: Annotated[bool, msgspec.Meta(description="its ranks report steps through the in-pod contract")] = (
        False
    )
    checkpoint_step: Annotated[int, msgspec.Meta(ge=-1, description="step of the saved checkpoint; -1: unknown")] = -1
    resumed_step: Annotated[int, msgspec.Meta(ge=-1, description="first step seen in the new place; -1: none yet")] = -1
    traceparent: str = ""

    @property
    def key(self) -> str:
        """namespace/name, as users write it."""
        return f"{self.namespace}/{self.name}"


class DomainRef(Resource, frozen=True, kw_only=True):
    """A part of the cluster that many nodes share, such as one leaf switch."""

    level: Annotated[str, msgspec.Meta(min_length=1, max_length=253, description="such as leaf, rack, nvlink-domain")]
    name: Annotated[
        str, msgspec.Meta(max_length=1024, description="its labels from the top level down; empty: the whole cluster")
    ] = ""


class DomainState(Resource, frozen=True, kw_only=True):
    """What the evidence of its nodes says about a domain."""

    score: Score = 100
    members: Annotated[int, msgspec.Meta(ge=0, description="GPU nodes in the domain")] = 0
    affected: Annotated[int, msgspec.Meta(ge=0, description="how many of them are in trouble")] = 0
    nodes: Annotated[
        list[str], msgspec.Meta(max_length=DOMAIN_NODES_MAX, description="names of those in trouble, the first ones")
    ] = []
    culprits: Annotated[
        list[str], msgspec.Meta(max_length=DOMAIN_NODES_MAX, description="nodes that named the guilty part themselves")
    ] = []
    since: Timestamp | None = None


class RemediationSpec(Resource, frozen=True, kw_only=True):
    """Cause of the episode, and a person's word on it. It is about a node or about a domain."""

    node: Annotated[str, msgspec.Meta(max_length=253, description="the sick node; absent where domain is given")] = ""
    cause: Annotated[
        str, msgspec.Meta(max_length=1024, description="code of the deciding finding, such as xid/79, or domain/fabric")
    ]
    subject_id: Annotated[str, msgspec.Meta(description="UUID of the GPU or id of the link; empty: the node")] = ""
    boot_id: Annotated[str, msgspec.Meta(description="boot of the node that the evidence is from")] = ""
    cancel: Annotated[bool, msgspec.Meta(description="true stops the episode before its next rung")] = False
    domain: DomainRef | None = None


class RemediationStatus(Resource, frozen=True, kw_only=True):
    """Progress of the episode."""

    phase: Phase = Phase.OPEN
    mode: ActionMode = ActionMode.OBSERVE
    steps: list[Step] = []
    jobs: list[AffectedJob] = []
    message: Annotated[
        str, msgspec.Meta(max_length=MESSAGE_MAX, description="how far it is, or what holds it back")
    ] = ""
    checkpoint_request: Annotated[str, msgspec.Meta(description="id of the request sent to all ranks")] = ""
    checkpoint_deadline: Timestamp | None = None
    conditions: list[Condition] = []
    domain: DomainState | None = None


class Remediation(Root, frozen=True, kw_only=True):
    """One remediation episode."""

    metadata: ObjectMeta
    spec: RemediationSpec
    status: RemediationStatus = msgspec.field(default_factory=RemediationStatus)
    api_version: str = API_VERSION
    kind: str = "Remediation"
