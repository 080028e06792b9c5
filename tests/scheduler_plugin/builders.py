"""Nodes, pods and clusters in few words."""

from collections.abc import Iterable, Sequence
from typing import Any

from outrider.api.core import (
    Container,
    Job,
    JobSpec,
    NamedReference,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    StatusCondition,
    Taint,
    Toleration,
)
from outrider.api.gangplacement import (
    GangPlacement,
    GangPlacementSpec,
    GangPlacementStatus,
    PlacementState,
    RankAssignment,
)
from outrider.api.gpunode import GPUNode, GPUNodeSpec, GPUNodeStatus, Health, Mode, Verdict
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.api.names import GANG_GATE, JOB_UID_LABEL, SCHEDULER_NAME
from outrider.api.times import rfc3339
from outrider.topology import levels_from
from outrider.workloads import GPU, GangRef
from scheduler_plugin.cluster.members import GangState
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.world import World
from scheduler_plugin.rules import Rules

NOW = 1_800_000_000.0
RULES = Rules(levels_from("nvidia"))
_NVIDIA = "network.topology.nvidia.com"


def make_node(
    name: str,
    leaf: str = "leaf-0",
    spine: str = "spine-0",
    *,
    gpus: int = 8,
    cpu: str = "64",
    taints: Sequence[Taint] = (),
    cordoned: bool = False,
    labels: dict[str, str] | None = None,
) -> Node:
    place = {f"{_NVIDIA}/spine": spine, f"{_NVIDIA}/leaf": leaf, "kubernetes.io/hostname": name}
    return Node(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", labels=place | (labels or {})),
        spec=NodeSpec(taints=list(taints), unschedulable=cordoned),
        status=NodeStatus(allocatable={GPU: str(gpus), "cpu": cpu, "memory": "512Gi", "pods": "110"}),
    )


def make_gpunode(
    name: str,
    *,
    verdict: Verdict = Verdict.NONE,
    health: Health = Health.HEALTHY,
    score: int = 100,
    reason: str = "",
    age_seconds: float = 1.0,
    mode: Mode = Mode.AUTO,
) -> GPUNode:
    observed = rfc3339(NOW - age_seconds)
    status = GPUNodeStatus(verdict=verdict, health=health, score=score, reason=reason, observed_at=observed)
    return GPUNode(metadata=ObjectMeta(name=name, uid=f"health-{name}"), spec=GPUNodeSpec(mode=mode), status=status)


def owner(name: str = "train", kind: str = "Job") -> OwnerReference:
    api_version = "batch/v1" if kind == "Job" else "kubeflow.org/v1"
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=f"job-{name}", controller=True)


def gang_ref(name: str = "train") -> GangRef:
    return GangRef("batch/v1", "Job", name, f"job-{name}")


def make_pod(
    name: str,
    *,
    gpus: int = 8,
    job: str = "",
    rank: int | None = None,
    gated: bool = True,
    node: str = "",
    phase: str = "Pending",
    cpu: str = "1",
    affinity: dict[str, Any] | None = None,
    node_selector: dict[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
    age_seconds: float = 60.0,
    refused: bool = False,
) -> Pod:
    labels = {JOB_UID_LABEL: f"job-{job}"} if job else {}
    if rank is not None:
        labels["batch.kubernetes.io/job-completion-index"] = str(rank)
    requests = {"cpu": cpu} | ({GPU: str(gpus)} if gpus else {})
    tried = StatusCondition(type="PodScheduled", status="False", reason="Unschedulable")
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ml",
            uid=f"uid-{name}",
            labels=labels,
            owner_references=[owner(job)] if job else [],
            creation_timestamp=rfc3339(NOW - age_seconds),
        ),
        spec=PodSpec(
            node_name=node,
            scheduler_name=SCHEDULER_NAME,
            scheduling_gates=[NamedReference(name=GANG_GATE)] if job and gated and not node else [],
            containers=[Container(name="main", resources=ResourceRequirements(requests=requests))],
            affinity=affinity or {},
            node_selector=node_selector or {},
            tolerations=list(tolerations),
        ),
        status=PodStatus(phase=phase, conditions=[tried] if refused else []),
    )


def make_job(name: str = "train", size: int = 3) -> Job:
    spec = JobSpec(parallelism=size, completions=size, completion_mode="Indexed")
    return Job(metadata=ObjectMeta(name=name, namespace="ml", uid=f"job-{name}"), spec=spec)


def make_placement(
    job: str,
    nodes: dict[int, str],
    *,
    spares: Sequence[str] = (),
    state: PlacementState = PlacementState.PLANNED,
    expires_in: float = 60.0,
    revision: int = 1,
) -> GangPlacement:
    ranks = [
        RankAssignment(rank=rank, pod=f"{job}-{rank}", pod_uid=f"uid-{job}-{rank}", node=node, gpus=8)
        for rank, node in nodes.items()
    ]
    return GangPlacement(
        metadata=ObjectMeta(name=f"job-{job}", namespace="ml", uid=f"placement-{job}"),
        spec=GangPlacementSpec(job_kind="Job", job_name=job, job_uid=f"job-{job}", size=len(ranks)),
        status=GangPlacementStatus(
            state=state, revision=revision, ranks=ranks, spares=list(spares), expires_at=rfc3339(NOW + expires_in)
        ),
    )


def make_world(*objects: object, rules: Rules = RULES) -> World:
    world = World(rules, clock=lambda: NOW)
    for one in objects:
        match one:
            case Node():
                world.on_node(None, one)
            case GPUNode():
                world.on_gpunode(None, one)
            case Pod():
                world.on_pod(None, one)
            case GangPlacement():
                world.on_placement(None, one)
            case Job():
                world.on_job(None, one)
            case _:
                raise TypeError(type(one))
    world.publish()
    return world


def make_snapshot(*objects: object, rules: Rules = RULES) -> Snapshot:
    return make_world(*objects, rules=rules).snapshot


def make_gang(job: Job | None, pods: Iterable[Pod], placement: GangPlacement | None = None) -> GangState:
    name = job.metadata.name if job else "train"
    return GangState(gang_ref(name), "ml", job, tuple(pods), placement)


def gang_pods(job: str, count: int, **kwargs: Any) -> list[Pod]:
    return [make_pod(f"{job}-{rank}", job=job, rank=rank, **kwargs) for rank in range(count)]


def pinned_to(*nodes: str) -> dict[str, Any]:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
