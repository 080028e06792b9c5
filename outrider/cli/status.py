"""`outrider status`: nodes, jobs and remediation episodes as rows. Pure."""

import msgspec

from outrider.api.core import Node, Pod
from outrider.api.gangplacement import GangPlacement
from outrider.api.gpunode import GPUNode, Health
from outrider.api.remediation import DomainRef, DomainState, Phase, Remediation, Step, StepState
from outrider.api.times import parse_rfc3339
from outrider.cli.picture import Picture
from outrider.health.taint import taint_of
from outrider.topology import Domain
from outrider.workloads import gated, job_uid_of, rank_of

_MARKS = {StepState.RUNNING: "…", StepState.DONE: "✓", StepState.EXPIRED: "✗", StepState.SKIPPED: "-"}


class NodeRow(msgspec.Struct, frozen=True, rename="camel"):
    """One GPU node. ``age_seconds`` is the age of the agent's report, null where there is none."""

    name: str
    health: str
    score: int
    verdict: str
    reason: str
    gpus: str
    taint: str
    mode: str
    age_seconds: float | None
    message: str


class RankRow(msgspec.Struct, frozen=True, rename="camel"):
    """One pod of a job. Steps are -1 where unknown."""

    rank: int
    pod: str
    node: str
    phase: str
    step: int
    checkpoint_step: int


class JobRow(msgspec.Struct, frozen=True, rename="camel"):
    """One training job."""

    namespace: str
    name: str
    kind: str
    state: str
    domain: str
    message: str
    ranks: list[RankRow]


class EpisodeRow(msgspec.Struct, frozen=True, rename="camel"):
    """One remediation episode."""

    name: str
    node: str
    cause: str
    phase: str
    mode: str
    steps: list[Step]
    message: str


class DomainRow(msgspec.Struct, frozen=True, rename="camel"):
    """One domain, such as a leaf switch, that is suspected because many of its nodes are in trouble at once."""

    level: str
    name: str
    score: int
    cause: str
    affected: int
    members: int
    culprits: list[str]
    episode: str
    message: str


class Status(msgspec.Struct, frozen=True):
    """The whole answer."""

    nodes: list[NodeRow]
    jobs: list[JobRow]
    episodes: list[EpisodeRow]
    domains: list[DomainRow] = []


def status_of(picture: Picture) -> Status:
    """Return the rows, sickest nodes and open episodes first."""
    nodes = [_node_row(name, gpu_node, picture) for name, gpu_node in picture.gpu_nodes.items()]
    episodes = sorted(picture.episodes, key=lambda one: (one.status.phase is not Phase.OPEN, one.metadata.name))
    return Status(
        nodes=sorted(nodes, key=lambda row: (row.score, row.name)),
        jobs=_job_rows(picture),
        episodes=[_episode_row(episode) for episode in episodes],
        domains=[_domain_row(one.spec.domain, one) for one in episodes if one.spec.domain and _suspected(one)],
    )


def _suspected(episode: Remediation) -> bool:
    return episode.status.phase is Phase.OPEN and episode.status.domain is not None


def _domain_row(domain: DomainRef, episode: Remediation) -> DomainRow:
    state = episode.status.domain or DomainState()
    return DomainRow(
        level=domain.level,
        name=domain.name,
        score=state.score,
        cause=episode.spec.cause,
        affected=state.affected,
        members=state.members,
        culprits=state.culprits,
        episode=episode.metadata.name,
        message=episode.status.message,
    )


def _node_row(name: str, gpu_node: GPUNode, picture: Picture) -> NodeRow:
    status = gpu_node.status
    healthy = sum(gpu.health is Health.HEALTHY for gpu in status.gpus)
    return NodeRow(
        name=name,
        health=str(status.health),
        score=status.score,
        verdict=str(status.verdict),
        reason=status.reason,
        gpus=f"{healthy}/{len(status.gpus)}",
        taint=taint_value(picture.nodes.get(name)),
        mode=str(gpu_node.spec.mode),
        age_seconds=age_seconds(gpu_node, picture.now),
        message=status.message,
    )


def taint_value(node: Node | None) -> str:
    """Return the value of Outrider's taint, empty for none."""
    taint = taint_of(node) if node else None
    return taint.value or "set" if taint else ""


def age_seconds(gpu_node: GPUNode, now: float) -> float | None:
    """Return the age of the agent's last report (0 where its clock is ahead), None where it never reported."""
    try:
        return max(0.0, round(now - parse_rfc3339(gpu_node.status.observed_at or ""), 1))
    except ValueError:
        return None


def _job_rows(picture: Picture) -> list[JobRow]:
    plans = {(plan.metadata.namespace, plan.spec.job_uid): plan for plan in picture.placements}
    pods = {(pod.metadata.namespace, job_uid_of(pod)): pod for pod in picture.pods if not pod.finished}
    keys = sorted(plans.keys() | pods.keys())
    return sorted(
        (_job_row(namespace, uid, plans.get((namespace, uid)), picture) for namespace, uid in keys),
        key=lambda row: (row.namespace, row.name),
    )


def _job_row(namespace: str, uid: str, plan: GangPlacement | None, picture: Picture) -> JobRow:
    pods = [pod for pod in picture.job_pods(uid, namespace) if not pod.finished]
    owner = pods[0].metadata.controller() if pods else None
    return JobRow(
        namespace=namespace,
        name=plan.spec.job_name if plan else owner.name if owner else uid,
        kind=plan.spec.job_kind if plan else owner.kind if owner else "",
        state=str(plan.status.state) if plan else "NotPlanned",
        domain=plan.status.domain if plan else "",
        message=plan.status.message if plan else "",
        ranks=sorted((_rank_row(pod, picture) for pod in pods), key=lambda row: (row.rank, row.pod)),
    )


def _rank_row(pod: Pod, picture: Picture) -> RankRow:
    rank = rank_of(pod)
    states = picture.ranks_of(pod)
    return RankRow(
        rank=-1 if rank is None else rank,
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        phase=phase_of(pod),
        step=max((state.step for state in states), default=-1),
        checkpoint_step=max((state.checkpoint_step for state in states), default=-1),
    )


def phase_of(pod: Pod) -> str:
    """Return the pod's phase as kubectl would name it, and Gated while its gang has no plan."""
    if pod.metadata.deletion_timestamp:
        return "Terminating"
    return "Gated" if gated(pod) else pod.status.phase


def _episode_row(episode: Remediation) -> EpisodeRow:
    status = episode.status
    return EpisodeRow(
        name=episode.metadata.name,
        node=place_of(episode),
        cause=episode.spec.cause,
        phase=str(status.phase),
        mode=str(status.mode),
        steps=status.steps,
        message=status.message,
    )


def place_of(episode: Remediation) -> str:
    """Return the node, or the domain, that the episode is about."""
    domain = episode.spec.domain
    return str(Domain(domain.level, domain.name)) if domain else episode.spec.node


def steps_line(steps: list[Step]) -> str:
    """Return the rungs with their outcome in one line: isolate ✓ checkpoint …"""
    return " ".join(f"{step.name} {_MARKS[step.state]}" for step in steps) or "none yet"
