"""`outrider why JOB`: where a whole gang stands, in plain words, from API objects only. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from outrider.api import names
from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement, PlacementState
from outrider.api.remediation import Phase
from outrider.api.why import Why
from outrider.cli.picture import Picture
from outrider.cli.status import phase_of
from outrider.cli.why import Fact, queue_facts, scheduling_message
from outrider.words import listed, plural
from outrider.workloads import gated, rank_of

_REFUSALS_SHOWN = 3
_NODES_SHOWN = 4


class PodRow(msgspec.Struct, frozen=True):
    """One pod of the gang; ``rank`` -1 where it has none, ``node`` where it runs or is planned."""

    rank: int
    pod: str
    node: str
    phase: str
    gated: bool


class JobExplanation(msgspec.Struct, frozen=True):
    """The answer: facts in the order in which they happen to a gang, its pods, and the first thing to do."""

    job: str
    state: str
    domain: str
    facts: list[Fact]
    pods: list[PodRow]
    next_step: str = msgspec.field(name="next")
    why: Why | None = None
    """What it needs, what there is and what would make room first, as data."""


def explain_job(uid: str, namespace: str, name: str, picture: Picture) -> JobExplanation:
    """Say where the gang of that UID stands and why; ``name`` as people call it."""
    plan = next((plan for plan in picture.placements if plan.spec.job_uid == uid), None)
    pods = [pod for pod in picture.job_pods(uid, namespace) if not pod.finished]
    facts = [*_admission(pods), *_plan(plan, pods), *_scheduling(pods), *_nodes(pods, picture)]
    facts += [*_episodes(uid, picture), *_training(pods, picture)]
    first = next((fact.next_step for fact in facts if fact.next_step), "nothing: Outrider waits for nobody here")
    status = plan.status if plan else None
    return JobExplanation(
        job=f"{plan.spec.job_kind if plan else 'job'} {namespace}/{plan.spec.job_name if plan else name}",
        state=str(status.state) if status else "not planned",
        domain=status.domain if status else "",
        facts=facts,
        pods=sorted((_row(pod, plan) for pod in pods), key=lambda row: (row.rank < 0, row.rank, row.pod)),
        next_step=first,
        why=status.why if status else None,
    )


def _row(pod: Pod, plan: GangPlacement | None) -> PodRow:
    seat = next((one for one in plan.status.ranks if one.pod_uid == pod.metadata.uid), None) if plan else None
    rank = seat.rank if seat else rank_of(pod)
    node = pod.spec.node_name or (seat.node if seat else "")
    return PodRow(-1 if rank is None else rank, pod.metadata.name, node, phase_of(pod), gated(pod))


def _admission(pods: Sequence[Pod]) -> Iterator[Fact]:
    if not pods:
        yield Fact("admission", "no pod of it exists", "see the job's own events: a quota is the usual reason")
        return
    missed = [pod.metadata.name for pod in pods if names.INJECTED_ANNOTATION not in pod.metadata.annotations]
    if missed:
        whose = f"{len(missed)} of {plural(len(pods), 'pod')} did not pass Outrider's webhook: {listed(missed, 3)}"
        yield Fact("admission", whose, "outrider check; then recreate these pods")
    else:
        yield Fact("admission", f"all of its {plural(len(pods), 'pod')} were admitted by Outrider")
    if waiting := sum(map(gated, pods)):
        yield Fact("gate", f"{plural(waiting, 'pod')} held by the scheduling gate {names.GANG_GATE}")


def _plan(plan: GangPlacement | None, pods: Sequence[Pod]) -> Iterator[Fact]:
    if plan is None:
        if any(map(gated, pods)):
            yield Fact("plan", "no plan was written yet", "outrider check: is the planner running?")
        return
    status = plan.status
    domain = f" within {status.domain}" if status.domain else ""
    waits = status.state is PlacementState.WAITING
    describe = f"kubectl describe gangplacement -n {plan.metadata.namespace} {plan.metadata.name}" if waits else ""
    yield Fact("plan", f"gang of {plan.spec.size} is {status.state}{domain}. {status.message}".strip(), describe)
    if status.spares:
        yield Fact("plan", f"spare nodes: {', '.join(status.spares)}")
    yield from queue_facts(plan)


def _scheduling(pods: Sequence[Pod]) -> Iterator[Fact]:
    """Say each refusal of kube-scheduler once, with the number of pods that it keeps waiting."""
    refusals = Counter(message for pod in pods if (message := scheduling_message(pod)))
    for message, count in refusals.most_common(_REFUSALS_SHOWN):
        pod = next(pod for pod in pods if scheduling_message(pod) == message)
        describe = f"kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name}"
        yield Fact("scheduling", f"{plural(count, 'pod')}: {message}", describe)


def _nodes(pods: Sequence[Pod], picture: Picture) -> Iterator[Fact]:
    on = {pod.spec.node_name: pod for pod in pods if pod.spec.node_name}
    sick = [name for name in on if (node := picture.gpu_nodes.get(name)) and node.status.verdict.hard]
    for name in sick[:_NODES_SHOWN]:
        status = picture.gpu_nodes[name].status
        text = f"on {name} ({on[name].metadata.name}): {status.health}, verdict {status.verdict}. {status.message}"
        yield Fact("node", text.strip(), f"kubectl describe gpunode {name}")
    if on and not sick:
        yield Fact("node", f"runs on {plural(len(on), 'node')}, none of them with a hard verdict")


def _episodes(uid: str, picture: Picture) -> Iterator[Fact]:
    for episode in sorted(picture.episodes, key=lambda one: one.metadata.creation_timestamp or ""):
        job = next((job for job in episode.status.jobs if job.uid == uid), None)
        if job is None:
            continue
        status, spec = episode.status, episode.spec
        words = f"{episode.metadata.name} ({status.phase}, {status.mode}): {', '.join(job.pods)} on {spec.node}"
        advice = f"kubectl describe remediation {episode.metadata.name}" if status.phase is Phase.OPEN else ""
        yield Fact("remediation", f"{words} because of {spec.cause}. {status.message}".strip(), advice)


def _training(pods: Sequence[Pod], picture: Picture) -> Iterator[Fact]:
    ranks = [state for pod in pods for state in picture.ranks_of(pod)]
    if ranks:
        steps, saved = [one.step for one in ranks], [one.checkpoint_step for one in ranks]
        where = f"step {min(steps)}" if min(steps) == max(steps) else f"steps {min(steps)} to {max(steps)}"
        checkpoint = f", last checkpoint at step {min(saved)}" if min(saved) >= 0 else ""
        yield Fact("training", f"{plural(len(ranks), 'rank')} at {where}{checkpoint}")
