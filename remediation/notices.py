"""What people and traces are told about a change of an episode: events and spans, from before and after. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from outrider.api import reasons
from outrider.api.remediation import ActionMode, Phase, Remediation, RemediationStatus, Step, StepName, StepState
from outrider.api.times import parse_rfc3339
from outrider.telemetry.traces import job_traceparent
from remediation.episodes import accepted
from remediation.rungs import step_of


class Subject(StrEnum):
    """Kinds of objects that events go to."""

    NODE = "node"
    POD = "pod"
    EPISODE = "remediation"


@dataclass(frozen=True)
class Notice:
    """One event; ``key`` is the object's name, namespace/name for pods."""

    subject: Subject
    key: str
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True)
class StepSpan:
    """One finished rung in one job's trace, times in nanoseconds since 1970."""

    name: str
    traceparent: str
    start_ns: int
    end_ns: int
    attributes: dict[str, str | int]


_ENDS: Final = {
    (StepName.ISOLATE, StepState.DONE): reasons.NODE_TAINTED,
    (StepName.CHECKPOINT, StepState.DONE): reasons.CHECKPOINT_ACKNOWLEDGED,
    (StepName.CHECKPOINT, StepState.EXPIRED): reasons.CHECKPOINT_EXPIRED,
    (StepName.CHECKPOINT, StepState.SKIPPED): reasons.CHECKPOINT_SKIPPED,
    (StepName.MOVE, StepState.DONE): reasons.RANK_MOVED,
    (StepName.MOVE, StepState.EXPIRED): reasons.MOVE_BLOCKED,
    (StepName.RESUME, StepState.DONE): reasons.TRAINING_RESUMED,
    (StepName.RESUME, StepState.EXPIRED): reasons.RESUME_NOT_SEEN,
}
_NEXT: Final = {
    StepName.ISOLATE: "Next: ask the ranks of its jobs for a checkpoint.",
    StepName.CHECKPOINT: "Next: move the pods off the sick node.",
    StepName.MOVE: "Next: wait for the first training step in the new place.",
}
_PHASES: Final = {
    Phase.ISOLATED: reasons.NODE_ISOLATED,
    Phase.CANCELLED: reasons.REMEDIATION_CANCELLED,
    Phase.RESOLVED: reasons.GPU_RECOVERED,
}


def notices(before: RemediationStatus, after: Remediation, pods: tuple[str, ...]) -> list[Notice]:
    """Return the events of the change. ``pods`` are the keys of the affected jobs' live pods."""
    status = after.status
    told = [notice for step in status.steps for notice in _of_step(before, step, after, pods)]
    if status.phase is not before.phase:
        told += _everywhere(after, (), _end_reason(after), status.message)
    if not accepted(after) and before.conditions != status.conditions:
        message = status.conditions[0].message
        told.append(Notice(Subject.EPISODE, after.metadata.name, reasons.INVALID_SPEC, message, warning=True))
    if status.phase is Phase.OPEN and accepted(after):
        told += _of_start(before, after, pods) + _of_dry_run(before, after, pods)
    return told


def _end_reason(after: Remediation) -> str:
    domain = after.spec.domain is not None
    return reasons.DOMAIN_CLEARED if domain and after.status.phase is Phase.RESOLVED else _PHASES[after.status.phase]


def _of_start(before: RemediationStatus, after: Remediation, pods: tuple[str, ...]) -> list[Notice]:
    if before.conditions or not after.status.conditions:
        return []
    reason = reasons.DOMAIN_SUSPECT if after.spec.domain else reasons.REMEDIATION_STARTED
    return _everywhere(after, pods, reason, after.status.message, warning=True)


def _of_dry_run(before: RemediationStatus, after: Remediation, pods: tuple[str, ...]) -> list[Notice]:
    would = after.status.mode is ActionMode.DRY_RUN and after.spec.domain is None  # no mode acts on a domain
    if not would or after.status.message == before.message or not before.conditions:
        return []
    return _everywhere(after, pods, reasons.WOULD_ACT, after.status.message)


def _of_step(before: RemediationStatus, step: Step, after: Remediation, pods: tuple[str, ...]) -> list[Notice]:
    old = step_of(before, step.name)
    if old is None and step.name is StepName.CHECKPOINT:
        until = (after.status.checkpoint_deadline or "")[:19]
        text = f"asked every rank for a checkpoint because of {after.spec.cause} on {after.spec.node}, until {until}Z"
        return _everywhere(after, pods, reasons.CHECKPOINT_REQUESTED, text)
    reason = _ENDS.get((step.name, step.state))
    if reason is None or (old is not None and old.state is step.state):
        return []
    text = f"{step.proof}. {_NEXT.get(step.name, '')}".strip()
    return _everywhere(after, pods, reason, text, warning=step.state is StepState.EXPIRED)


def _everywhere(
    after: Remediation, pods: tuple[str, ...], reason: str, message: str, *, warning: bool = False
) -> list[Notice]:
    targets = [(Subject.EPISODE, after.metadata.name), *((Subject.NODE, node) for node in _nodes(after))]
    targets += [(Subject.POD, key) for key in pods]
    return [Notice(subject, key, reason, message, warning) for subject, key in targets]


def _nodes(after: Remediation) -> list[str]:
    """Return the nodes that are told: of a domain those that named the guilty part; the others would be too many."""
    if after.spec.domain is None:
        return [after.spec.node]
    return after.status.domain.culprits if after.status.domain else []


def spans(before: RemediationStatus, after: Remediation) -> list[StepSpan]:
    """Return a span for each rung that ended, in the trace of each affected job, and one for the resumption."""
    ended = [step for step in after.status.steps if step.finished_at and not _was_finished(before, step.name)]
    found = [_span(f"remediation.{step.name}", step, after, index) for step in ended for index in _jobs(after)]
    resumed = [step for step in ended if step.name is StepName.RESUME and step.state is StepState.DONE]
    return found + [_span("remediation.resumed", step, after, index) for step in resumed for index in _jobs(after)]


def _jobs(after: Remediation) -> range:
    return range(len(after.status.jobs))


def _was_finished(before: RemediationStatus, name: StepName) -> bool:
    step = step_of(before, name)
    return step is not None and step.finished_at is not None


def _span(name: str, step: Step, after: Remediation, index: int) -> StepSpan:
    job = after.status.jobs[index]
    end = step.finished_at or step.started_at
    attributes: dict[str, str | int] = {
        "outrider.node": after.spec.node,
        "outrider.cause": after.spec.cause,
        "outrider.remediation": after.metadata.name,
        "outrider.job": job.key,
        "outrider.state": str(step.state),
        "outrider.proof": step.proof,
        "outrider.checkpoint_step": job.checkpoint_step,
        "outrider.resumed_step": job.resumed_step,
    }
    return StepSpan(
        name=name,
        traceparent=job.traceparent or job_traceparent(job.uid),
        start_ns=_nanoseconds(end if name == "remediation.resumed" else step.started_at),
        end_ns=_nanoseconds(end),
        attributes=attributes,
    )


def _nanoseconds(time: str) -> int:
    return int(parse_rfc3339(time) * 1_000_000) * 1000
