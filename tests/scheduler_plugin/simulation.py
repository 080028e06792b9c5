"""A cluster over time, without a process: arrivals, ends and faults through the pure functions, on a clock of its own.

The API server is a World that gets every write at once; the Job controller, kube-scheduler and the garbage collector
are the few lines here that do what those do.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from outrider.api.core import Job, Node, Pod, PodStatus, StatusCondition
from outrider.api.gangplacement import GangPlacement, GangPlacementStatus, PlacementState
from outrider.api.gpunode import GPUNode, Verdict
from outrider.api.times import rfc3339
from outrider.workloads import gated
from scheduler_plugin.cluster.members import GangState
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.world import World
from scheduler_plugin.extender.decide import decide
from scheduler_plugin.planner.advance import Advance, advance
from scheduler_plugin.planner.deliver import placement_with, release_patch
from scheduler_plugin.planner.preempting import Losses
from scheduler_plugin.rules import Rules
from tests.scheduler_plugin.builders import NOW, RULES, make_gpunode, make_job, make_node, make_pod

GPUS = 8
T = TypeVar("T", Node, GPUNode, Job, Pod, GangPlacement)


@dataclass
class Work:
    """One job: ``seconds`` is how long it runs once all its pods are bound."""

    name: str
    pods: int
    gpus: int = GPUS
    seconds: float = 60.0
    priority: int = 0
    arrived: float = 0.0
    began: float | None = None
    ended: bool = False
    made: Counter[int] = field(default_factory=Counter)  # pods made so far, by rank


class Simulation:
    """``nodes`` nodes of 8 GPUs under leaves of ``leaf`` nodes. Times are seconds since the start."""

    def __init__(self, nodes: int, *, leaf: int = 4, rules: Rules = RULES) -> None:
        self.rules = rules
        self.time = 0.0
        self.world = World(rules, clock=lambda: NOW + self.time)
        self.work: dict[str, Work] = {}
        self.pods: dict[str, Pod] = {}
        self.placements: dict[str, GangPlacement] = {}
        self.steps: list[tuple[str, Advance]] = []
        self._version = 0
        for number in range(nodes):
            self.world.on_node(None, make_node(f"n{number}", f"leaf-{number // leaf}"))

    def arrive(self, work: Work) -> None:
        """A job is created, and its pods by its controller."""
        work.arrived = self.time
        self.work[f"job-{work.name}"] = work
        self.world.on_job(None, self._job(work))
        for rank in range(work.pods):
            self._make(work, rank)

    def fail(self, node: str) -> None:
        """A node breaks: its agent says so, and its pods are moved away by remediation."""
        self.world.on_gpunode(
            None, self._versioned(make_gpunode(node, verdict=Verdict.REPLACE, age_seconds=-self.time))
        )
        for pod in [pod for pod in self.pods.values() if pod.spec.node_name == node]:
            self._remake(pod)

    def heal(self, node: str) -> None:
        """The node has come back, without an agent that could fall silent."""
        self.world.on_gpunode(make_gpunode(node), None)

    def round(self, seconds: float = 10.0) -> None:
        """Let time pass: jobs end, the planner takes each gang's step, kube-scheduler binds what it may."""
        self.time += seconds
        for work in [one for one in self.work.values() if not one.ended]:
            if work.began is not None and self.time - work.began >= work.seconds:
                self._end(work)
        for _ in range(4):  # what one step changes, the next may need
            self.plan()
            self.bind()
        for uid, work in self.work.items():
            if work.began is None and not work.ended and self.bound(uid) == work.pods:
                work.began = self.time

    def plan(self) -> None:
        """The planner looks at every gang that is not settled, in the order of their turns."""
        for uid in self.world.unsettled(NOW + self.time):
            gang = self.world.gang(uid)
            if gang is not None:
                step = advance(gang, self.world.publish(), self.rules, NOW + self.time)
                if step.asks_losses:
                    step = advance(gang, self.world.publish(), self.rules, NOW + self.time, Losses())
                self.steps.append((uid, step))
                self._carry_out(gang, step)

    def _carry_out(self, gang: GangState, step: Advance) -> None:
        if step.status is not None:
            self.store(placement_with(gang, step.size, step.status))
        for pod, nodes in step.release:
            self.release(pod, nodes)
        for pod in step.evict:
            self._remake(pod)
        for victim in step.displace:
            self.work[victim.job_uid].began = None
            for pod_uid in victim.pod_uids:
                if pod_uid in self.pods:
                    self._remake(self.pods[pod_uid])

    def bind(self) -> None:
        """kube-scheduler tries each pod that has no gate: nodes with free GPUs, of those what the filter allows."""
        for pod in [pod for pod in self.pods.values() if not gated(pod) and not pod.spec.node_name]:
            snapshot = self.world.publish()
            names = [name for name, view in snapshot.nodes.items() if self._fits(pod, name, snapshot)]
            allowed = decide(pod, names, snapshot, NOW + self.time).allowed
            pinned = [name for name in allowed if name in _pins(pod)]
            if pinned:
                self._put(
                    msgspec.structs.replace(
                        pod,
                        spec=msgspec.structs.replace(pod.spec, node_name=pinned[0]),
                        status=PodStatus(phase="Running"),
                    )
                )
            else:
                refused = StatusCondition(type="PodScheduled", status="False", reason="Unschedulable")
                self._put(msgspec.structs.replace(pod, status=PodStatus(phase="Pending", conditions=[refused])))

    def bound(self, uid: str) -> int:
        """Return how many pods of the job are bound."""
        return sum(bool(pod.spec.node_name) for pod in self.of(uid))

    def of(self, uid: str) -> list[Pod]:
        """Return the job's pods."""
        return [pod for pod in self.pods.values() if pod.metadata.owner_references[0].uid == uid]

    def used(self) -> Counter[str]:
        """Return the GPUs that bound pods use, and those that plans hold for unbound ones, by node."""
        used: Counter[str] = Counter()
        ranks = {
            rank.pod_uid: rank.node
            for placement in self.placements.values()
            if placement.status.state is not PlacementState.WAITING
            for rank in placement.status.ranks
        }
        for pod in self.pods.values():
            node = pod.spec.node_name or ranks.get(pod.metadata.uid, "")
            if node:
                used[node] += int(pod.spec.containers[0].resources.requests["nvidia.com/gpu"])
        return used

    def status(self, name: str) -> GangPlacementStatus:
        """Return a job's placement status."""
        placement = self.placements.get(f"job-{name}")
        return placement.status if placement else GangPlacementStatus()

    def _fits(self, pod: Pod, name: str, snapshot: Snapshot) -> bool:
        view = snapshot.nodes[name]
        asked = int(pod.spec.containers[0].resources.requests["nvidia.com/gpu"]) * 1000
        return view.free.get("nvidia.com/gpu", 0) >= asked

    def _job(self, work: Work) -> Job:
        return self._versioned(make_job(work.name, work.pods))

    def _make(self, work: Work, rank: int) -> None:
        name = f"{work.name}-{rank}-{work.made[rank]}"
        work.made[rank] += 1
        pod = make_pod(name, job=work.name, rank=rank, gpus=work.gpus, age_seconds=-self.time)
        self._put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=work.priority)))

    def _remake(self, pod: Pod) -> None:
        """The pod is evicted, and its controller makes the next one."""
        self._drop(pod)
        work = self.work[pod.metadata.owner_references[0].uid]
        self._make(work, int(pod.metadata.labels["batch.kubernetes.io/job-completion-index"]))

    def _end(self, work: Work) -> None:
        """The job is done and deleted; the garbage collector takes its pods and its placement."""
        work.ended = True
        uid = f"job-{work.name}"
        for pod in self.of(uid):
            self._drop(pod)
        self.world.on_job(self._job(work), None)
        if placement := self.placements.pop(uid, None):
            self.world.on_placement(placement, None)

    def release(self, pod: Pod, nodes: tuple[str, ...]) -> None:
        """The planner pins a pod and lifts its gate."""
        patch = release_patch(pod, nodes, "")
        affinity = next(one["value"] for one in patch if one["path"] == "/spec/affinity" and one["op"] == "add")
        self._put(
            msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity, scheduling_gates=[]))
        )

    def _put(self, pod: Pod) -> None:
        old = self.pods.get(pod.metadata.uid)
        stored = self._versioned(pod)
        self.pods[pod.metadata.uid] = stored
        self.world.on_pod(old, stored)

    def _drop(self, pod: Pod) -> None:
        old = self.pods.pop(pod.metadata.uid, None)
        if old is not None:
            self.world.on_pod(old, None)

    def store(self, placement: GangPlacement) -> None:
        """The planner writes a placement."""
        uid = placement.spec.job_uid
        old = self.placements.get(uid)
        meta = msgspec.structs.replace(
            placement.metadata,
            uid=f"placement-{uid}",
            creation_timestamp=placement.metadata.creation_timestamp or rfc3339(NOW + self.time),
        )
        stored = self._versioned(msgspec.structs.replace(placement, metadata=meta))
        self.placements[uid] = stored
        self.world.on_placement(old, stored)

    def _versioned(self, thing: T) -> T:
        self._version += 1
        meta = msgspec.structs.replace(thing.metadata, resource_version=str(self._version))
        return msgspec.structs.replace(thing, metadata=meta)


def _pins(pod: Pod) -> list[str]:
    required = pod.spec.affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [term["matchFields"][0]["values"][0] for term in required["nodeSelectorTerms"]]
