"""Second rung: ask every rank of the affected jobs for a checkpoint and wait, for a bounded time. Pure.

All pods of a job are asked, not only those on the sick node: a checkpoint is a collective act, and one rank that saves
alone leaves the others waiting for it.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from outrider.api.checkpoint import AnswerState, CheckpointRequest
from outrider.api.core import Pod
from outrider.api.gpunode import RankState
from outrider.api.names import CHECKPOINT_REQUEST_ANNOTATION
from outrider.api.remediation import AffectedJob, Remediation, RemediationStatus, Step, StepName, StepState
from outrider.api.times import parse_rfc3339, rfc3339
from outrider.api.trainingpolicy import Checkpoint
from outrider.workloads import policy_for
from remediation.decisions import Action, RequestCheckpoint
from remediation.episodes import affected_jobs, merged, sound
from remediation.rungs import Context, Outcome, Rung, step_of
from remediation.world import World, alive


@dataclass(frozen=True)
class Answer:
    """Where one job stands: ``final`` once more waiting can bring nothing, ``saved`` where a checkpoint was written."""

    final: bool
    saved: bool
    text: str
    job: AffectedJob


def _prepare(context: Context) -> RemediationStatus:
    """Fix whom to ask, under which request, and until when. A request under way elsewhere is joined, not repeated."""
    affected = merged(context.status.jobs, affected_jobs(context.node, context.world))
    jobs = [_covered(job, context) for job in affected]
    mine = [job for job in jobs if job.checkpoint_request == context.episode.metadata.name]
    grace = max((_grace_seconds(job, context.world) for job in mine), default=0)
    deadlines = [context.now + grace, *(_deadline_elsewhere(job, context) for job in jobs if job not in mine)]
    return msgspec.structs.replace(
        context.status,
        jobs=jobs,
        checkpoint_request=context.episode.metadata.name if mine else next((j.checkpoint_request for j in jobs), ""),
        checkpoint_deadline=rfc3339(max(deadlines)),
    )


def _grace_seconds(job: AffectedJob, world: World) -> int:
    """Return the longest time that any of the job's pods is granted for a checkpoint, in seconds."""
    metas = [pod.metadata for pod in world.job_pods(job.uid, job.namespace)]
    specs = [policy_for(world.policies.values(), meta.namespace, meta.labels) for meta in metas]
    return max((spec.checkpoint.grace_seconds for spec in specs), default=Checkpoint().grace_seconds)


def _covered(job: AffectedJob, context: Context) -> AffectedJob:
    other = covering(job, context)
    request = other[1].checkpoint_request if other else context.episode.metadata.name
    return msgspec.structs.replace(job, checkpoint_request=request)


def covering(job: AffectedJob, context: Context) -> tuple[Remediation, AffectedJob] | None:
    """Return another open episode that has asked this job already, with its record of the job."""
    for other in context.world.open_episodes():
        mine = other.metadata.name == context.episode.metadata.name
        if mine or not sound(other) or not _recent(other, context):
            continue
        for theirs in other.status.jobs:
            if theirs.uid == job.uid and theirs.checkpoint_request and theirs.resumed_step < 0:
                return other, theirs
    return None


def _recent(other: Remediation, context: Context) -> bool:
    step = step_of(other.status, StepName.CHECKPOINT)
    if step is None or step.finished_at is None:
        return step is not None
    return context.now - parse_rfc3339(step.finished_at) < context.config.shared_request_seconds


def _deadline_elsewhere(job: AffectedJob, context: Context) -> float:
    owner = _asked_by(job, context)
    return parse_rfc3339(owner.status.checkpoint_deadline) if owner and owner.status.checkpoint_deadline else 0.0


def _asked_by(job: AffectedJob, context: Context) -> Remediation | None:
    owner = context.world.remediations.get(job.checkpoint_request)
    return owner if owner and sound(owner) else None


def _assess(context: Context) -> Outcome | None:
    answers = [_answer(job, context) for job in context.status.jobs]
    if not answers:
        return Outcome(StepState.SKIPPED, f"no training pod is left on {context.node}")
    jobs = tuple(answer.job for answer in answers)
    text = "; ".join(answer.text for answer in answers)
    if all(answer.final for answer in answers):
        saved = all(answer.saved for answer in answers)
        return Outcome(StepState.DONE if saved else StepState.SKIPPED, text, jobs)
    if _seconds_left(context) <= 0:
        return Outcome(StepState.EXPIRED, f"not every rank answered in time: {text}", jobs)
    return None


def _answer(job: AffectedJob, context: Context) -> Answer:
    where = job.key
    pods = _running(job, context.world)
    reports = [(pod, context.world.ranks(pod)) for pod in pods]
    ranks = [rank for _, of_pod in reports for rank in of_pod]
    known = _learned(job, ranks)
    if (theirs := _ended_elsewhere(job, context)) is not None:
        saved = theirs.state is StepState.DONE
        return Answer(True, saved, f"{where} was asked by {job.checkpoint_request}: {theirs.proof}", known)
    if not _still_there(job, context.world):
        return Answer(True, False, f"{where}: its pods on {context.node} ended by themselves", known)
    if not ranks:
        return _unreported(known, context)
    return _answered(known, [pod for pod, of_pod in reports if not of_pod], ranks)


def _unreported(job: AffectedJob, context: Context) -> Answer:
    waited = context.seconds_in(StepName.CHECKPOINT) >= context.config.no_report_wait_seconds
    text = f"{job.key}: no rank reports to Outrider, so none can be asked; it resumes from its own"
    return Answer(waited, False, f"{text} last checkpoint", job)


def _answered(job: AffectedJob, silent: list[Pod], ranks: list[RankState]) -> Answer:
    acknowledged = [rank for rank in ranks if rank.acknowledged == job.checkpoint_request]
    saved = any(rank.acknowledged_state == AnswerState.SAVED for rank in acknowledged)
    where = job.key
    if len(acknowledged) < len(ranks) or silent:
        missing = f", {len(silent)} pods report no rank" if silent else ""
        return Answer(False, False, f"{where}: {len(acknowledged)} of {len(ranks)} ranks answered{missing}", job)
    if saved:
        return Answer(True, True, f"{where}: all {len(ranks)} ranks answered, saved at step {job.checkpoint_step}", job)
    return Answer(True, False, f"{where}: no rank saved; last checkpoint known is step {job.checkpoint_step}", job)


def _learned(job: AffectedJob, ranks: list[RankState]) -> AffectedJob:
    step = max([job.checkpoint_step, *(rank.checkpoint_step for rank in ranks)])
    return msgspec.structs.replace(job, checkpoint_step=step, reports_steps=job.reports_steps or bool(ranks))


def _running(job: AffectedJob, world: World) -> list[Pod]:
    return [pod for pod in world.job_pods(job.uid, job.namespace) if pod.status.phase == "Running"]


def _still_there(job: AffectedJob, world: World) -> bool:
    pods = (world.pod_by_uid(uid) for uid in job.pod_uids)
    return any(pod is not None and alive(pod) for pod in pods)


def _ended_elsewhere(job: AffectedJob, context: Context) -> Step | None:
    """Return the finished checkpoint rung of the other episode whose request covers the job.

    Where that episode was cancelled in the middle, its request still stands on the pods and is waited for here.
    """
    if job.checkpoint_request == context.episode.metadata.name:
        return None
    owner = _asked_by(job, context)
    step = step_of(owner.status, StepName.CHECKPOINT) if owner else None
    return step if step and step.state is not StepState.RUNNING else None


def _actions(context: Context) -> tuple[Action, ...]:
    mine = [job for job in context.status.jobs if job.checkpoint_request == context.episode.metadata.name]
    value = request_value(context)
    return tuple(
        RequestCheckpoint(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, value)
        for job in mine
        for pod in _running(job, context.world)
        if pod.metadata.annotations.get(CHECKPOINT_REQUEST_ANNOTATION) != value
    )


def request_value(context: Context) -> str:
    """Return the annotation's value, built only from what is recorded, so that a restart writes the same again."""
    request = CheckpointRequest(
        id=context.episode.metadata.name,
        reason=f"{context.episode.spec.cause} on {context.node}",
        deadline_unix=_deadline(context),
    )
    return msgspec.json.encode(request).decode()


def _deadline(context: Context) -> float:
    return parse_rfc3339(context.status.checkpoint_deadline or rfc3339(context.now))


def _seconds_left(context: Context) -> float:
    return _deadline(context) - context.now


def _waiting(context: Context) -> str:
    texts = [answer.text for job in context.status.jobs if not (answer := _answer(job, context)).final]
    until = context.status.checkpoint_deadline or ""
    return f"waiting for a checkpoint until {until[:19]}Z: {'; '.join(texts)}"


CHECKPOINT: Final = Rung(
    name=StepName.CHECKPOINT,
    prepare=_prepare,
    assess=_assess,
    actions=_actions,
    waiting=_waiting,
    poll_seconds=1.0,
)
