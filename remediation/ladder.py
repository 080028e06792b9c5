"""The ladder: what to do next in an episode. Pure: (episode, world, config, now) -> Decision.

A decision's status is recorded before its actions run, and every rung's end is read from the world, not remembered
from having acted. So a controller killed at any point takes up where the cluster stands.
"""

from typing import Final

import msgspec

from outrider.api.remediation import ActionMode, Phase, Remediation, StepName, StepState
from remediation import budget
from remediation.checkpointing import CHECKPOINT
from remediation.common_cause import common_cause, explanation
from remediation.config import Config
from remediation.decisions import Decision
from remediation.domain_episodes import next_look
from remediation.episodes import begun, names, nonsense, refused, started
from remediation.isolating import ISOLATE
from remediation.moving import MOVE, RESUME, remaining
from remediation.rungs import Context, Rung, begin, finish, step_of, with_message
from remediation.world import Belief, World

RUNGS: Final = (ISOLATE, CHECKPOINT, MOVE, RESUME)
_LOOK_AGAIN_SECONDS: Final = 10.0  # while a person, the budget or silence holds an episode back
_AT_ONCE: Final = 0.0


def next_step(episode: Remediation, world: World, config: Config, now: float) -> Decision:
    """Return what to record and to do. ``now`` in seconds since 1970."""
    if episode.status.phase is not Phase.OPEN:
        return Decision(episode.status)
    if wrong := nonsense(episode):
        return Decision(refused(episode, wrong, now).status)
    if episode.spec.domain:
        return next_look(episode, world, config, now)
    if not begun(episode):
        return Decision(started(episode, world, config.mode, now).status, after_seconds=_AT_ONCE)
    context = Context(_in_mode(episode, config.mode), world, config, now)
    return _ended(context) or _held(context) or _climb(context)


def _in_mode(episode: Remediation, mode: ActionMode) -> Remediation:
    return msgspec.structs.replace(episode, status=msgspec.structs.replace(episode.status, mode=mode))


def _ended(context: Context) -> Decision | None:
    """Return the end of the episode where there is nothing more to do in it."""
    if context.episode.spec.cancel:
        return _close(context, Phase.CANCELLED, "cancelled by spec.cancel; what was done so far stays as it is")
    last = step_of(context.status, StepName.RESUME)
    if last and last.state is not StepState.RUNNING:
        return _close(context, Phase.ISOLATED, _isolated(context, last.proof))
    evidence = context.world.evidence(context.node, context.now, context.config.evidence_fresh_seconds)
    moving = step_of(context.status, StepName.MOVE) is not None
    if evidence.belief is Belief.WELL and (not moving or remaining(context)):
        text = f"the evidence on {context.node} is gone ({evidence.text}); no further pod is moved"
        return _close(context, Phase.RESOLVED, text)
    if not moving and _empty(context):
        return _close(context, Phase.ISOLATED, _isolated(context, f"no training pod is on {context.node}"))
    return None


def _empty(context: Context) -> bool:
    """True once the node takes no new work and holds no training pod; a rung under way is first brought to its end."""
    if any(step.state is StepState.RUNNING for step in context.status.steps) or not context.world.closed(context.node):
        return False
    left = context.world.gang_pods(context.node)
    return not left and (not context.status.jobs or context.config.mode is not ActionMode.ENFORCE)


def _isolated(context: Context, proof: str) -> str:
    node = context.node
    kept = "its GPUs stay isolated" if context.world.isolated_gpus(node) else f"{node} keeps its taint"
    return f"{proof}. {kept} until its agent finds it healthy: kubectl describe gpunode {node}"


def _close(context: Context, phase: Phase, message: str) -> Decision:
    status = msgspec.structs.replace(context.status, phase=phase)
    return Decision(with_message(status, message))


def _held(context: Context) -> Decision | None:
    """Return a pause where something forbids to act: a common cause, mode, a person, silence, or the budget."""
    shared = common_cause(context.node, context.world)
    if shared and step_of(context.status, StepName.MOVE) is None:
        return _pause(context, explanation(context.node, shared))
    if context.config.mode is not ActionMode.ENFORCE:
        return _pause(context, would(context))
    if step_of(context.status, StepName.RESUME):
        return None  # from here on it only looks
    if why := context.world.paused(context.node):
        return _pause(context, f"GPUNode {context.node} is Paused ({why}); set spec.mode to Auto to let Outrider act")
    evidence = context.world.evidence(context.node, context.now, context.config.evidence_fresh_seconds)
    if evidence.belief is not Belief.SICK and not _all_gone(context):
        return _pause(context, f"{evidence.text}; nothing is done until fresh evidence says that it must be")
    refusal = budget.refusal(context)
    return _pause(context, f"{refusal}; waits for one of them to end") if refusal else None


def _all_gone(context: Context) -> bool:
    """True in the move once no pod is left to evict: only looking remains, which needs no evidence."""
    return step_of(context.status, StepName.MOVE) is not None and not remaining(context)


def _pause(context: Context, message: str) -> Decision:
    return Decision(with_message(context.status, message), after_seconds=_LOOK_AGAIN_SECONDS)


def would(context: Context) -> str:
    """Return what enforce would do from here, in words."""
    jobs = context.status.jobs
    pods = [f"{job.namespace}/{pod}" for job in jobs for pod in job.pods]
    if not pods:
        return f"{context.config.mode} mode: enforce would keep new work off {context.node}; no training pod is on it"
    return (
        f"{context.config.mode} mode, nothing was changed: enforce would keep new work off {context.node}, ask every "
        f"rank of {names(jobs)} for a checkpoint, then evict {', '.join(pods)}"
    )


def _climb(context: Context) -> Decision:
    rung = _current(context)
    if step_of(context.status, rung.name) is None:
        status = begin(rung.prepare(context), rung.name, context.now)
        return Decision(status, after_seconds=_AT_ONCE)
    if outcome := rung.assess(context):
        return Decision(finish(context.status, rung.name, outcome, context.now), after_seconds=_AT_ONCE)
    status = with_message(context.status, rung.waiting(context))
    return Decision(status, rung.actions(context), rung.poll_seconds)


def _current(context: Context) -> Rung:
    """Return the rung under way, or the next one; a rung that expired is behind us like one that is done."""
    for rung in RUNGS:
        step = step_of(context.status, rung.name)
        if step is None or step.state is StepState.RUNNING:
            return rung
    return RUNGS[-1]
