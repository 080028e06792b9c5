"""`outrider why POD`: what happened to a pod, in plain words, from API objects only. Pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from outrider.api import names
from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement, PlacementState, RankAssignment
from outrider.api.gpunode import Health
from outrider.api.remediation import Phase, Remediation
from outrider.api.why import Why
from outrider.cli.picture import Picture
from outrider.cli.resources import Namespace
from outrider.cli.status import phase_of, steps_line, taint_value
from outrider.words import listed, plural
from outrider.workloads import gated, gpus_of, job_uid_of, rank_of

_NODES_SHOWN: Final = 4
_BIND: Final = "kubectl describe pod: why does kube-scheduler refuse the planned nodes?"
_ROOM: Final = "repair, uncordon or free such a node (outrider status); the planner then places the pod by itself"


class Fact(msgspec.Struct, frozen=True):
    """One thing that is so; ``next_step`` is what to do about it, empty where nothing needs doing."""

    topic: str
    text: str
    next_step: str = msgspec.field(default="", name="next")


class Explanation(msgspec.Struct, frozen=True):
    """The answer: facts in the order in which they happen to a pod, and the first thing to do."""

    pod: str
    phase: str
    node: str
    facts: list[Fact]
    next_step: str = msgspec.field(name="next")
    why: Why | None = None
    """Why its gang waits, as data."""


def explain(pod: Pod, namespace: Namespace, picture: Picture) -> Explanation:
    """Say where the pod stands and why."""
    facts = [*_admission(pod, namespace), *_plan(pod, picture), *_scheduling(pod), *_node(pod, picture)]
    facts += [*_domains(pod, picture), *_episodes(pod, picture), *_training(pod, picture)]
    first = next((fact.next_step for fact in facts if fact.next_step), "nothing: Outrider waits for nobody here")
    plan = _plan_of(pod, picture)
    why = plan.status.why if plan and not pod.spec.node_name else None
    return Explanation(pod.key, phase_of(pod), pod.spec.node_name, facts, first, why)


def _admission(pod: Pod, namespace: Namespace) -> Iterator[Fact]:
    if pod.metadata.labels.get(names.IGNORE_LABEL) == "true":
        yield Fact("admission", f"the label {names.IGNORE_LABEL}=true keeps Outrider away from this pod")
    elif version := pod.metadata.annotations.get(names.INJECTED_ANNOTATION):
        yield Fact("admission", f"admitted by Outrider {version}")
    elif gpus_of(pod) == 0:
        yield Fact("admission", "the pod asks for no GPU, so Outrider does not manage it")
    elif namespace.metadata.labels.get(names.ENABLED_LABEL) != "true":
        name = namespace.metadata.name
        text = f"Outrider is not switched on in namespace {name}"
        yield Fact("admission", text, f"kubectl label namespace {name} {names.ENABLED_LABEL}=true, then recreate it")
    else:
        text = "the pod was created while the webhook did not answer, or before the namespace was enabled"
        yield Fact("admission", text, "outrider check; then recreate the pod")


def _plan(pod: Pod, picture: Picture) -> Iterator[Fact]:
    plan = _plan_of(pod, picture)
    why = pod.metadata.annotations.get(names.WHY_ANNOTATION)
    if why and not (plan and pod.spec.node_name):  # of a bound pod it tells how things were when it was planned
        yield Fact("plan", why)
    if gated(pod):
        yield _gate(pod, plan)
    if plan is not None:
        yield from _placement(pod, plan)


def _plan_of(pod: Pod, picture: Picture) -> GangPlacement | None:
    return next((plan for plan in picture.placements if plan.spec.job_uid == job_uid_of(pod)), None)


def _gate(pod: Pod, plan: GangPlacement | None) -> Fact:
    text = f"held by the scheduling gate {names.GANG_GATE} until"
    if plan is None:
        told = f"{text} its whole gang is planned; no plan was written yet"
        return Fact("gate", told, "outrider check: is the planner running?")
    if plan.status.state is PlacementState.WAITING:
        describe = f"kubectl describe gangplacement -n {pod.metadata.namespace} {plan.metadata.name}"
        return Fact("gate", f"{text} its whole gang is planned", describe)
    if _seat(pod, plan) is None:
        return Fact("gate", f"{text} a node has room for it; the gang's plan has no place for it yet", _ROOM)
    return Fact("gate", f"{text} it is planned; the plan is written and the gate is about to be lifted")


def _seat(pod: Pod, plan: GangPlacement) -> RankAssignment | None:
    return next((one for one in plan.status.ranks if one.pod_uid == pod.metadata.uid), None)


def _placement(pod: Pod, plan: GangPlacement) -> Iterator[Fact]:
    status = plan.status
    mine = _seat(pod, plan)
    where = f", this pod on {mine.node} as rank {mine.rank}" if mine else ""
    domain = f" within {status.domain}" if status.domain else ""
    left_out = gated(pod) and mine is None and status.state is not PlacementState.WAITING
    state = f"{status.state}{domain} without this pod" if left_out else f"{status.state}{domain}{where}"
    yield Fact("plan", f"gang of {plan.spec.size} is {state}. {status.message}".strip())
    if status.spares:
        yield Fact("plan", f"spare nodes: {', '.join(status.spares)}")
    yield from queue_facts(plan)


def queue_facts(plan: GangPlacement) -> Iterator[Fact]:
    """Yield what was not taken, what the gang holds while it waits, who makes room, and when it is tried again."""
    status = plan.status
    for refused in status.rejected[:3]:
        yield Fact("plan", f"not {refused.domain}: {refused.reason}")
    held = sorted({node for one in status.reservations for node in one.nodes})
    if held:
        since = f", waiting since {status.queued_at}" if status.queued_at else ""
        yield Fact("queue", f"holds room on {plural(len(held), 'node')} ({listed(held, _NODES_SHOWN)}){since}")
    if status.preempting:
        leaving = [f"{one.job_kind} {one.namespace}/{one.job_name}" for one in status.preempting]
        yield Fact("queue", f"{listed(leaving, _NODES_SHOWN)} {'makes' if len(leaving) == 1 else 'make'} room for it")
    if status.attempts:
        again = f"; it is planned again at {status.retry_at}" if status.retry_at else ""
        yield Fact("queue", f"{plural(status.attempts, 'plan')} in a row did not bind{again}", _BIND)


def scheduling_message(pod: Pod) -> str:
    """Return what kube-scheduler says of a pod that it could not place, empty where it says nothing."""
    if pod.spec.node_name or gated(pod):
        return ""
    return next((one.message for one in pod.status.conditions if one.type == "PodScheduled"), "")


def _scheduling(pod: Pod) -> Iterator[Fact]:
    if pod.spec.node_name or gated(pod):
        return
    if message := scheduling_message(pod):
        yield Fact("scheduling", message, f"kubectl describe pod -n {pod.metadata.namespace} {_name(pod)}")
    elif pod.spec.scheduler_name == names.SCHEDULER_NAME:
        yield Fact("scheduling", "no scheduler has looked at it yet", "outrider check: is the scheduler running?")


def _name(pod: Pod) -> str:
    return pod.metadata.name


def _node(pod: Pod, picture: Picture) -> Iterator[Fact]:
    name = pod.spec.node_name
    gpu_node = picture.gpu_nodes.get(name)
    if not name:
        return
    if gpu_node is None:
        yield Fact(
            "node", f"runs on {name}, whose GPUs no agent reports", f"outrider check: does {name} have an agent?"
        )
        return
    status = gpu_node.status
    taint = f", tainted {taint}" if (taint := taint_value(picture.nodes.get(name))) else ""
    text = f"on {name}: {status.health}, score {status.score}, verdict {status.verdict}{taint}. {status.message}"
    sick = status.verdict.hard or status.health is Health.UNKNOWN
    yield Fact("node", text.strip(), f"kubectl describe gpunode {name}" if sick else "")


def _domains(pod: Pod, picture: Picture) -> Iterator[Fact]:
    for episode in picture.episodes:
        state = episode.status.domain
        if episode.status.phase is Phase.OPEN and state and pod.spec.node_name in state.nodes:
            yield Fact("domain", episode.status.message, _advice(episode))


def _episodes(pod: Pod, picture: Picture) -> Iterator[Fact]:
    for episode in sorted(picture.episodes, key=lambda one: one.metadata.creation_timestamp or ""):
        if text := _part(pod, episode):
            status = episode.status
            words = f"{episode.metadata.name} ({status.phase}, {status.mode}): {text}; {steps_line(status.steps)}"
            yield Fact("remediation", f"{words}. {status.message}", _advice(episode))


def _part(pod: Pod, episode: Remediation) -> str:
    """Return the pod's part in an episode, empty where it has none."""
    cause = f"{episode.spec.cause} on {episode.spec.node}"
    is_open = episode.status.phase is Phase.OPEN
    for job in episode.status.jobs:
        if pod.metadata.uid in job.pod_uids:
            return f"{'moves' if is_open else 'was to move'} this pod off because of {cause}"
        if job.uid != job_uid_of(pod):
            continue
        if (pod.metadata.creation_timestamp or "") >= (episode.metadata.creation_timestamp or "") and (
            rank_of(pod) in job.ranks
        ):
            return f"this pod replaces {', '.join(job.pods)}, moved because of {cause}"
        return f"another rank of this job {'is' if is_open else 'was'} moved because of {cause}; this pod stays"
    return ""


def _advice(episode: Remediation) -> str:
    if episode.status.phase is not Phase.OPEN:
        return ""
    return f"kubectl describe remediation {episode.metadata.name}"


def _training(pod: Pod, picture: Picture) -> Iterator[Fact]:
    for state in picture.ranks_of(pod)[:8]:
        saved = f", last checkpoint at step {state.checkpoint_step}" if state.checkpoint_step >= 0 else ""
        yield Fact("training", f"rank {state.rank} is at step {state.step}{saved}")
