"""Third and fourth rung: move the ranks off the sick node, then see them train again. Pure.

Only pods on the sick node are evicted, through the eviction API and bound to their UID. Force is never used here.
"""

from typing import Final

import msgspec

from outrider.api.core import Pod
from outrider.api.gangplacement import PlacementState
from outrider.api.gpunode import RankState
from outrider.api.remediation import AffectedJob, StepName, StepState
from outrider.api.times import parse_rfc3339
from remediation.decisions import Action, Evict
from remediation.episodes import UNKNOWN_RANK, known_rank
from remediation.rungs import Context, Outcome, Rung, step_of
from remediation.world import World, alive

_JOB_OVER_SECONDS: Final = 30.0


def _assess_move(context: Context) -> Outcome | None:
    if not remaining(context) and not _missing(context):
        return Outcome(StepState.DONE, "; ".join(_moved(job, context) for job in context.status.jobs))
    if context.seconds_in(StepName.MOVE) >= context.config.move_timeout_seconds:
        return Outcome(StepState.EXPIRED, f"given up: {_waiting_move(context)}. {_way_out(context)}")
    return None


def _moved(job: AffectedJob, context: Context) -> str:
    where = job.key
    if _over(job, context):
        return f"{where} has no pods any more"
    news = ((rank, successor(job, rank, context)) for rank in job.ranks)
    return f"{where}: " + ", ".join(f"rank {rank} is now pod {new.metadata.name}" for rank, new in news if new)


def _missing(context: Context) -> list[str]:
    """Return the ranks that no new pod has taken over, in words."""
    return [
        f"rank {rank} of {job.key}"
        for job in context.status.jobs
        if not _over(job, context)
        for rank in job.ranks
        if successor(job, rank, context) is None
    ]


def _over(job: AffectedJob, context: Context) -> bool:
    """True for a job that ended or was deleted: long without any pod, while a job of one pod is so only for moments."""
    long = context.seconds_in(StepName.MOVE) >= _JOB_OVER_SECONDS
    return long and not context.world.job_pods(job.uid, job.namespace)


def _way_out(context: Context) -> str:
    if pods := remaining(context):
        return f"Loosen the PodDisruptionBudget or delete the pod yourself: kubectl delete pod -n {_where(pods[0])}"
    return "Look at the job: its controller makes no new pod"


def _where(pod: Pod) -> str:
    return f"{pod.metadata.namespace} {pod.metadata.name}"


def remaining(context: Context) -> list[Pod]:
    """Return the recorded pods that still hold the sick node."""
    pods = (context.world.pod_by_uid(uid) for job in context.status.jobs for uid in job.pod_uids)
    return [pod for pod in pods if pod is not None and alive(pod) and pod.spec.node_name == context.node]


def successor(job: AffectedJob, rank: int, context: Context) -> Pod | None:
    """Return the pod that took over a rank: another UID, the same rank, not on what is sick."""
    others = (pod for pod in context.world.job_pods(job.uid, job.namespace) if pod.metadata.uid not in job.pod_uids)
    fits = (pod for pod in others if known_rank(pod) == rank and context.world.off(pod, context.node))
    return next((pod for pod in fits if rank != UNKNOWN_RANK or _made_since(pod, context)), None)


def _made_since(pod: Pod, context: Context) -> bool:
    """Tell a new pod from an old one where ranks can't: creation times are whole seconds, so the start is cut too."""
    step = step_of(context.status, StepName.MOVE)
    created = pod.metadata.creation_timestamp
    return bool(step and created and parse_rfc3339(created) >= int(parse_rfc3339(step.started_at)))


def _evict(context: Context) -> tuple[Action, ...]:
    return tuple(
        Evict(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, context.node) for pod in remaining(context)
    )


def _waiting_move(context: Context) -> str:
    if pods := remaining(context):
        return f"evicting {', '.join(pod.key for pod in pods)} from {context.node}{_dead_node(context)}"
    return f"waiting for the new pod of {', '.join(_missing(context))}{_dead_node(context)}"


def _dead_node(context: Context) -> str:
    if context.world.ready(context.node) or context.node not in context.world.nodes:
        return ""
    return (
        f"; {context.node} is not Ready, so the old pod stays Terminating until the node is back or is removed: "
        "Outrider does not delete by force"
    )


def _assess_resume(context: Context) -> Outcome | None:
    jobs = tuple(_resumed(job, context) for job in context.status.jobs)
    if all(seen for _, seen in jobs):
        return Outcome(StepState.DONE, "; ".join(seen for _, seen in jobs), tuple(job for job, _ in jobs))
    if context.seconds_in(StepName.RESUME) >= context.config.resume_timeout_seconds:
        limit = context.config.resume_timeout_seconds
        return Outcome(StepState.EXPIRED, f"no step seen within {limit:.0f} s: {_waiting_resume(context)}")
    return None


def _resumed(job: AffectedJob, context: Context) -> tuple[AffectedJob, str]:
    """Return the job and, once all its moved ranks train again, the proof in words."""
    news = [successor(job, rank, context) for rank in job.ranks]
    pods = [pod for pod in news if pod is not None and pod.status.phase == "Running" and pod.spec.node_name]
    if _over(job, context):
        return job, f"{job.key} has no pods any more"
    if len(pods) < len(job.ranks):
        return job, ""
    where = f"{job.key} on {', '.join(sorted({pod.spec.node_name for pod in pods}))}"
    steps = [_first_step(context.world.ranks(pod), job.checkpoint_step) for pod in pods]
    if all(step is not None for step in steps):
        step = min(step for step in steps if step is not None)
        return msgspec.structs.replace(job, resumed_step=step), f"{where} trains again at step {step}{_from(job)}"
    if not job.reports_steps and not any(context.world.ranks(pod) for pod in pods):
        return job, f"{where} runs again; its ranks report no steps"
    return job, ""


def _from(job: AffectedJob) -> str:
    return f", checkpoint was step {job.checkpoint_step}" if job.checkpoint_step >= 0 else ""


def _first_step(ranks: list[RankState], checkpoint_step: int) -> int | None:
    """Return the step that proves training in a new process.

    A beacon counts from the resumed step where that is known, else from 0; so a count equal to the checkpoint's may
    be the resumed count itself, while any other count of one or more is a step that this process did.
    """
    done = [rank.step for rank in ranks if rank.step > 0 and rank.step != checkpoint_step]
    return max(done, default=None)


def _waiting_resume(context: Context) -> str:
    texts = [_why_not(job, context) for job in context.status.jobs if not _resumed(job, context)[1]]
    return f"waiting for the first step of {'; '.join(texts)}"


def _why_not(job: AffectedJob, context: Context) -> str:
    name = job.key
    pods = [pod for rank in job.ranks if (pod := successor(job, rank, context))]
    pending = [pod.metadata.name for pod in pods if pod.status.phase != "Running"]
    if pending:
        return f"{name}: pod {', '.join(pending)} is not running yet{_plan(job, context.world)}"
    return f"{name}: {len(pods)} of {len(job.ranks)} moved ranks run, no step reported yet"


def _plan(job: AffectedJob, world: World) -> str:
    plan = world.placement(job.uid)
    if plan is None or plan.status.state is not PlacementState.WAITING:
        return ""
    return f" ({plan.status.message})" if plan.status.message else ""


MOVE: Final = Rung(name=StepName.MOVE, assess=_assess_move, actions=_evict, waiting=_waiting_move, poll_seconds=2.0)
RESUME: Final = Rung(name=StepName.RESUME, assess=_assess_resume, waiting=_waiting_resume, poll_seconds=5.0)
