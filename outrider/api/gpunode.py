"""GPUNode: the health of one node's GPUs. The agent of the node writes status; people write spec."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from outrider.api.meta import MESSAGE_MAX, Condition, ObjectMeta, Resource, Root, Timestamp
from outrider.api.names import API_VERSION

FINDINGS_MAX: Final = 128  # kept for a node
RANKS_MAX: Final = 256  # training ranks shown for a node; far more than it has GPUs
LINE_MAX: Final = 512  # characters of an evidence line
NICS_MAX: Final = 64  # network adapters shown for a node
INCIDENTS_MAX: Final = 32  # physical faults shown for a node
FABRIC_MAX: Final = 256  # characters that describe a GPU's part in the NVSwitch fabric
MEMBERS_MAX: Final = 16  # codes shown for an incident
OFFENDERS_MAX: Final = 64  # GPUs whose hard faults are remembered for a node; boards that come and go included

Score = Annotated[int, msgspec.Meta(ge=0, le=100, description="0 (do not use) to 100 (nothing known against it)")]


class Mode(StrEnum):
    """What people allow Outrider to do with the node."""

    AUTO = "Auto"
    PAUSED = "Paused"  # judged and shown, never acted on
    QUARANTINED = "Quarantined"  # no new work, whatever the evidence


class Verdict(StrEnum):
    """What to do about the evidence, mildest first."""

    NONE = "none"
    WATCH = "watch"
    RESTART_APP = "restart-app"  # a program that restarts itself needs no help, so it never hides the next one
    NO_NEW_WORK = "no-new-work"
    RESET = "reset"
    REBOOT = "reboot"
    REPLACE = "replace"

    @property
    def severity(self) -> int:
        """Position in that order, 0 for none."""
        return _SEVERITY[self]

    @property
    def hard(self) -> bool:
        """True where the hardware can't be trusted with running work: reset, reboot or replace."""
        return self in (Verdict.RESET, Verdict.REBOOT, Verdict.REPLACE)


_SEVERITY: Final = {verdict: place for place, verdict in enumerate(Verdict)}


class Health(StrEnum):
    """One-word state for people and printer columns."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


class SubjectKind(StrEnum):
    """What a finding is about."""

    GPU = "gpu"
    LINK = "link"
    NIC = "nic"
    NODE = "node"


class Finding(Resource, frozen=True, kw_only=True):
    """Evidence with a code, kept whether or not the code is known."""

    code: Annotated[str, msgspec.Meta(description="source/detail, such as xid/79 or nvlink/inactive")]
    subject: SubjectKind = SubjectKind.NODE
    subject_id: Annotated[str, msgspec.Meta(description="GPU UUID, UUID/link number, NIC name; empty for the node")] = (
        ""
    )
    first_seen: Timestamp
    last_seen: Timestamp
    count: Annotated[int, msgspec.Meta(ge=1, description="how often it was seen")] = 1
    evidence: Annotated[str, msgspec.Meta(max_length=LINE_MAX, description="the line or reading that shows it")] = ""
    verdict: Verdict = Verdict.NONE
    decided_by: Annotated[str, msgspec.Meta(description="code seen with it that decided its verdict, if one did")] = ""
    distinct: Annotated[
        int, msgspec.Meta(ge=1, description="how many different messages; 256 stands for all above")
    ] = 1
    unit: Annotated[str, msgspec.Meta(description="part of the subject that failed last, such as GPC 1 TPC 2")] = ""


class Incident(Resource, frozen=True, kw_only=True):
    """One physical fault, whatever the number of probes and codes that show it."""

    lead: Annotated[str, msgspec.Meta(description="code that names the fault")]
    members: Annotated[
        list[str], msgspec.Meta(max_length=MEMBERS_MAX, description="the other codes that show the same fault")
    ] = []
    subject: SubjectKind = SubjectKind.NODE
    subject_id: Annotated[str, msgspec.Meta(description="GPU UUID, UUID/link number, NIC name; empty for the node")] = (
        ""
    )
    verdict: Verdict = Verdict.NONE
    since: Timestamp


class Offender(Resource, frozen=True, kw_only=True):
    """A GPU that failed hard before, remembered by serial number over reboots and names of the node."""

    serial: Annotated[str, msgspec.Meta(description="serial number of the board; its UUID where it has none")]
    episodes: Annotated[int, msgspec.Meta(ge=1, description="times it failed hard within the last 7 days")] = 1
    last: Timestamp
    reason: Annotated[str, msgspec.Meta(description="code that decided last")] = ""


class NIC(Resource, frozen=True, kw_only=True):
    """State of one network adapter that somebody has evidence about."""

    name: str
    health: Health = Health.UNKNOWN
    score: Score = 0
    verdict: Verdict = Verdict.NONE


class GPU(Resource, frozen=True, kw_only=True):
    """State of one GPU as last read."""

    index: Annotated[int, msgspec.Meta(ge=0)]
    uuid: str
    serial: str = ""
    pci_address: str = ""
    model: str = ""
    health: Health = Health.UNKNOWN
    score: Score = 0
    verdict: Verdict = Verdict.NONE
    recovery_action: Annotated[
        int | None, msgspec.Meta(description="what the driver wants done, 0 nothing; absent where it has no such value")
    ] = None
    links_active: Annotated[int, msgspec.Meta(ge=0, description="NVLinks that are up")] = 0
    links_total: Annotated[int, msgspec.Meta(ge=0, description="NVLinks of the board")] = 0
    fabric: Annotated[str, msgspec.Meta(max_length=FABRIC_MAX, description="state of the NVSwitch fabric, clique")] = ""
    held_by: Annotated[str, msgspec.Meta(description="namespace/name of the pod that has it")] = ""
    isolated: Annotated[bool, msgspec.Meta(description="a DeviceTaintRule keeps new pods off it, not off the node")] = (
        False
    )


class RankState(Resource, frozen=True, kw_only=True):
    """What the in-pod beacon of one training rank last said."""

    pod_uid: str
    pod_name: str = ""
    namespace: str = ""
    rank: Annotated[int, msgspec.Meta(ge=0)]
    step: Annotated[int, msgspec.Meta(ge=0)] = 0
    checkpoint_step: Annotated[int, msgspec.Meta(ge=-1, description="last finished checkpoint; -1 if none")] = -1
    step_seconds: Annotated[float, msgspec.Meta(ge=0, description="wall time of the last step; 0 if not known")] = 0.0
    acknowledged: Annotated[str, msgspec.Meta(description="id of the last checkpoint request answered")] = ""
    acknowledged_state: Annotated[str, msgspec.Meta(description="saved, no-writer or expired")] = ""
    observed_at: Timestamp


class DiagnosticRequest(Resource, frozen=True, kw_only=True):
    """Value of the annotation outrider.dev/run-diagnostic: asks the agent for one active diagnostic of the node."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=63, description="each id is run once")]
    level: Annotated[int, msgspec.Meta(ge=1, le=4, description="run level of dcgmi diag: 1 takes seconds, 4 hours")] = 1


class DiagnosticState(StrEnum):
    """Where an active diagnostic stands."""

    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    NO_RESULT = "no-result"  # it says nothing about the hardware: not run, broken off, or unreadable


class Diagnostic(Resource, frozen=True, kw_only=True):
    """The last active diagnostic that was asked for."""

    id: Annotated[str, msgspec.Meta(description="id of the request that it answers")] = ""
    level: int = 0
    state: DiagnosticState = DiagnosticState.NO_RESULT
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    message: Annotated[
        str, msgspec.Meta(max_length=MESSAGE_MAX, description="what it found, or why it has no result")
    ] = ""


class GPUNodeSpec(Resource, frozen=True, kw_only=True):
    """Wishes of people about the node."""

    mode: Mode = Mode.AUTO
    reason: Annotated[str, msgspec.Meta(max_length=256, description="why the mode is not Auto")] = ""


class GPUNodeStatus(Resource, frozen=True, kw_only=True):
    """What the agent saw and concluded."""

    health: Health = Health.UNKNOWN
    score: Score = 0
    verdict: Verdict = Verdict.NONE
    reason: Annotated[str, msgspec.Meta(description="code of the finding that decided, empty when healthy")] = ""
    message: Annotated[
        str, msgspec.Meta(max_length=MESSAGE_MAX, description="what was seen, where, and what to do next")
    ] = ""
    gpus: list[GPU] = []
    nics: Annotated[list[NIC], msgspec.Meta(max_length=NICS_MAX)] = []
    findings: Annotated[list[Finding], msgspec.Meta(max_length=FINDINGS_MAX)] = []
    incidents: Annotated[list[Incident], msgspec.Meta(max_length=INCIDENTS_MAX, description="gravest first")] = []
    offenders: Annotated[list[Offender], msgspec.Meta(max_length=OFFENDERS_MAX, description="worst first")] = []
    ranks: Annotated[list[RankState], msgspec.Meta(max_length=RANKS_MAX)] = []
    diagnostic: Diagnostic | None = None
    boot_id: Annotated[str, msgspec.Meta(description="boot of the node that the evidence is from")] = ""
    driver_version: Annotated[str, msgspec.Meta(description="version of the NVIDIA driver")] = ""
    observed_at: Timestamp | None = None
    conditions: list[Condition] = []


class GPUNode(Root, frozen=True, kw_only=True):
    """One node's GPUs; named as the node."""

    metadata: ObjectMeta
    spec: GPUNodeSpec = GPUNodeSpec()
    status: GPUNodeStatus = msgspec.field(default_factory=GPUNodeStatus)
    api_version: str = API_VERSION
    kind: str = "GPUNode"
