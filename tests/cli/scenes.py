"""Small clusters as the command line would fetch them."""

from outrider.api import names
from outrider.api.core import Node, NodeSpec, Pod, PodSpec, PodStatus, StatusCondition, Taint
from outrider.api.gangplacement import (
    GangPlacement,
    GangPlacementSpec,
    GangPlacementStatus,
    PlacementState,
    RankAssignment,
)
from outrider.api.gpunode import GPU, GPUNode, GPUNodeStatus, Health, RankState, Verdict
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.api.remediation import (
    ActionMode,
    AffectedJob,
    DomainRef,
    DomainState,
    Phase,
    Remediation,
    RemediationSpec,
    RemediationStatus,
    Step,
    StepName,
    StepState,
)
from outrider.api.times import rfc3339
from outrider.cli.picture import Picture

NOW = 1_800_000_000.0
BEFORE, LATER = rfc3339(NOW - 100), rfc3339(NOW - 50)
JOB = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="job-1", controller=True)


def pod(rank: int, uid: str, node: str = "", created: str = BEFORE, **meta: object) -> Pod:
    labels = {names.JOB_UID_LABEL: "job-1", "batch.kubernetes.io/job-completion-index": str(rank)}
    meta.setdefault("annotations", {names.INJECTED_ANNOTATION: "0.1.0"})
    return Pod(
        metadata=ObjectMeta(
            name=f"train-{rank}-{uid}",
            namespace="team",
            uid=uid,
            labels=labels,
            creation_timestamp=created,
            owner_references=[JOB],
            **meta,  # type: ignore[arg-type]
        ),
        spec=PodSpec(node_name=node, scheduler_name=names.SCHEDULER_NAME),
        status=PodStatus(phase="Running" if node else "Pending"),
    )


def sick_node(name: str = "gpu-1") -> GPUNode:
    status = GPUNodeStatus(
        health=Health.UNHEALTHY,
        score=0,
        verdict=Verdict.REPLACE,
        reason="xid/79",
        message="GPU 3 fell off the bus",
        gpus=[GPU(index=0, uuid="a", health=Health.HEALTHY), GPU(index=1, uuid="b", health=Health.UNHEALTHY)],
        observed_at=rfc3339(NOW - 2),
    )
    return GPUNode(metadata=ObjectMeta(name=name), status=status)


def healthy_node(name: str, *ranks: RankState) -> GPUNode:
    status = GPUNodeStatus(health=Health.HEALTHY, score=100, ranks=list(ranks), observed_at=rfc3339(NOW - 1))
    return GPUNode(metadata=ObjectMeta(name=name), status=status)


def rank_state(uid: str, rank: int, step: int) -> RankState:
    return RankState(pod_uid=uid, rank=rank, step=step, checkpoint_step=step - 5, observed_at=rfc3339(NOW))


def episode(phase: Phase = Phase.OPEN) -> Remediation:
    job = AffectedJob(
        namespace="team",
        name="train",
        uid="job-1",
        pods=["train-1-old"],
        pod_uids=["old"],
        ranks=[1],
        checkpoint_step=95,
    )
    steps = [
        Step(name=StepName.ISOLATE, state=StepState.DONE, started_at=LATER, finished_at=LATER),
        Step(name=StepName.CHECKPOINT, state=StepState.RUNNING, started_at=LATER),
    ]
    status = RemediationStatus(
        phase=phase, mode=ActionMode.ENFORCE, steps=steps, jobs=[job], message="waiting for a checkpoint"
    )
    return Remediation(
        metadata=ObjectMeta(name="gpu-1-1234", creation_timestamp=LATER),
        spec=RemediationSpec(node="gpu-1", cause="xid/79"),
        status=status,
    )


def domain_episode(phase: Phase = Phase.OPEN) -> Remediation:
    state = DomainState(score=12, members=16, affected=14, nodes=["gpu-0", "gpu-1"], culprits=["gpu-1"])
    return Remediation(
        metadata=ObjectMeta(name="rack-r1-1234", creation_timestamp=LATER),
        spec=RemediationSpec(cause="domain/fabric", domain=DomainRef(level="rack", name="r1")),
        status=RemediationStatus(phase=phase, domain=state, message="rack r1: 14 of 16 nodes show NVLink trouble"),
    )


def placement(state: PlacementState = PlacementState.PLACED, message: str = "") -> GangPlacement:
    ranks = [RankAssignment(rank=0, pod="train-0-a", pod_uid="a", node="gpu-0", gpus=8)]
    return GangPlacement(
        metadata=ObjectMeta(name="job-train", namespace="team"),
        spec=GangPlacementSpec(job_kind="Job", job_name="train", job_uid="job-1", size=2),
        status=GangPlacementStatus(state=state, message=message, domain="leaf-0", ranks=ranks, spares=["gpu-3"]),
    )


def node(name: str, taint: str = "", **meta: object) -> Node:
    taints = [Taint(key=names.UNHEALTHY_TAINT, value=taint)] if taint else []
    return Node(metadata=ObjectMeta(name=name, **meta), spec=NodeSpec(taints=taints))  # type: ignore[arg-type]


def picture() -> Picture:
    """Rank 0 trains on gpu-0, rank 1 sits on the sick gpu-1, an episode is under way."""
    return Picture(
        now=NOW,
        nodes={"gpu-0": node("gpu-0"), "gpu-1": node("gpu-1", "xid-79")},
        gpu_nodes={"gpu-0": healthy_node("gpu-0", rank_state("a", 0, 100)), "gpu-1": sick_node()},
        pods=[pod(0, "a", "gpu-0"), pod(1, "old", "gpu-1")],
        placements=[placement()],
        episodes=[episode()],
    )


def unscheduled(message: str) -> list[StatusCondition]:
    return [StatusCondition(type="PodScheduled", status="False", message=message)]
