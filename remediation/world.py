"""What the ladder sees: one frozen look at the cluster, and questions about it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from outrider.api.core import Node, Pod, Taint
from outrider.api.gangplacement import GangPlacement
from outrider.api.gpunode import GPU, GPUNode, GPUNodeStatus, Health, Mode, RankState
from outrider.api.remediation import Phase, Remediation
from outrider.api.times import parse_rfc3339
from outrider.api.trainingpolicy import TrainingPolicy
from outrider.health.domains import Outlook
from outrider.health.taint import taint_of
from outrider.workloads import job_uid_of


class Belief(StrEnum):
    """What may be believed about a node right now."""

    SICK = "sick"  # fresh and hard: reset, reboot or replace
    WELL = "well"  # fresh, and nothing hard against it
    UNKNOWN = "unknown"  # silent, stale or blind: never a reason to act


@dataclass(frozen=True)
class Evidence:
    """A belief with the words for it."""

    belief: Belief
    text: str


@dataclass(frozen=True)
class World:
    """Snapshot of all informers. Keys are "namespace/name" or "name"."""

    gpu_nodes: Mapping[str, GPUNode] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    placements: Mapping[str, GangPlacement] = field(default_factory=dict)
    remediations: Mapping[str, Remediation] = field(default_factory=dict)
    policies: Mapping[str, TrainingPolicy] = field(default_factory=dict)
    outlook: Outlook = field(default_factory=Outlook)

    def evidence(self, node: str, now: float, fresh_seconds: float) -> Evidence:
        """Say what may be believed about the node's GPUs at ``now`` (seconds since 1970)."""
        gpu_node = self.gpu_nodes.get(node)
        if gpu_node is None:
            return Evidence(Belief.UNKNOWN, f"no GPUNode {node}: its agent has not reported")
        status = gpu_node.status
        silence_seconds = _silence_seconds(gpu_node, now)
        if silence_seconds < -fresh_seconds:  # written by hand, or by a clock that is wrong
            return Evidence(
                Belief.UNKNOWN, f"GPUNode {node} was observed at {status.observed_at}, which is yet to come"
            )
        if silence_seconds > fresh_seconds:
            return Evidence(Belief.UNKNOWN, f"the agent on {node} is silent since {status.observed_at or 'its start'}")
        if status.health is Health.UNKNOWN:
            return Evidence(Belief.UNKNOWN, f"the agent on {node} can't read its GPUs: {status.message or 'no reason'}")
        if status.verdict.hard:
            return Evidence(Belief.SICK, f"{status.reason or 'unnamed fault'}: verdict {status.verdict}")
        return Evidence(Belief.WELL, f"verdict {status.verdict}")

    def paused(self, node: str) -> str:
        """Return why people paused the node, empty where they did not."""
        gpu_node = self.gpu_nodes.get(node)
        if gpu_node is None or gpu_node.spec.mode is not Mode.PAUSED:
            return ""
        return gpu_node.spec.reason or "no reason given"

    def taint(self, node: str) -> Taint | None:
        """Return Outrider's taint on the node."""
        found = self.nodes.get(node)
        return taint_of(found) if found else None

    def ready(self, node: str) -> bool:
        """Tell whether the node's kubelet reports it ready."""
        found = self.nodes.get(node)
        conditions = found.status.conditions if found else []
        return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)

    def isolated_gpus(self, node: str) -> list[GPU]:
        """Return the sick GPUs where each is kept from new pods on its own, and nothing else on the node is sick."""
        status = self.gpu_nodes[node].status if node in self.gpu_nodes else GPUNodeStatus()
        sick = {gpu.uuid: gpu for gpu in status.gpus if gpu.verdict.hard}
        hard = [finding for finding in status.findings if finding.verdict.hard]
        beyond = any(finding.subject_id.split("/")[0] not in sick for finding in hard)
        return [] if beyond or not all(gpu.isolated for gpu in sick.values()) else list(sick.values())

    def closed(self, node: str) -> bool:
        """True where no new work can land on what is sick."""
        return node not in self.nodes or self.taint(node) is not None or bool(self.isolated_gpus(node))

    def gang_pods(self, node: str) -> list[Pod]:
        """Return the training pods that hold what is sick on the node, by name; those ending already are left out.

        That is all of them, unless single GPUs are isolated and it is known who holds which.
        """
        pods = (pod for pod in self.pods.values() if pod.spec.node_name == node and _in_gang(pod) and alive(pod))
        return sorted((pod for pod in pods if self._touched(pod, node)), key=lambda pod: pod.key)

    def _touched(self, pod: Pod, node: str) -> bool:
        isolated = self.isolated_gpus(node)
        known = bool(isolated) and any(gpu.held_by for gpu in self.gpu_nodes[node].status.gpus)
        return not known or any(gpu.held_by == pod.key for gpu in isolated)

    def off(self, pod: Pod, node: str) -> bool:
        """True for a pod that is elsewhere, or on the node's healthy GPUs while the sick ones are isolated."""
        return pod.spec.node_name != node or (bool(self.isolated_gpus(node)) and not self._touched(pod, node))

    def job_pods(self, job_uid: str, namespace: str) -> list[Pod]:
        """Return the live pods of a job, bound or not, in order of name."""
        return sorted(
            (pod for pod in self.pods.values() if _belongs(pod, job_uid, namespace) and alive(pod)),
            key=lambda pod: pod.key,
        )

    def pod_by_uid(self, uid: str) -> Pod | None:
        """Return the pod with this UID."""
        return next((pod for pod in self.pods.values() if pod.metadata.uid == uid), None)

    def ranks(self, pod: Pod) -> list[RankState]:
        """Return what the agent of the pod's node last heard from the pod's ranks."""
        gpu_node = self.gpu_nodes.get(pod.spec.node_name)
        return [rank for rank in gpu_node.status.ranks if rank.pod_uid == pod.metadata.uid] if gpu_node else []

    def episodes(self, node: str) -> list[Remediation]:
        """Return all episodes of the node, in order of name."""
        found = (episode for episode in self.remediations.values() if episode.spec.node == node)
        return sorted(found, key=lambda episode: episode.metadata.name)

    def open_episodes(self) -> list[Remediation]:
        """Return all episodes under way, in order of name."""
        found = (episode for episode in self.remediations.values() if episode.status.phase is Phase.OPEN)
        return sorted(found, key=lambda episode: episode.metadata.name)

    def domain_episodes(self) -> list[Remediation]:
        """Return all episodes about domains, in order of name."""
        found = (episode for episode in self.remediations.values() if episode.spec.domain is not None)
        return sorted(found, key=lambda episode: episode.metadata.name)

    def placement(self, job_uid: str) -> GangPlacement | None:
        """Return the plan of a job's gang."""
        return next((plan for plan in self.placements.values() if plan.spec.job_uid == job_uid), None)


def alive(pod: Pod) -> bool:
    """True for a pod that neither ended nor is being deleted."""
    return not pod.finished and pod.metadata.deletion_timestamp is None


def _in_gang(pod: Pod) -> bool:
    return bool(job_uid_of(pod)) and pod.metadata.controller() is not None


def _belongs(pod: Pod, uid: str, namespace: str) -> bool:
    return job_uid_of(pod) == uid and pod.metadata.namespace == namespace


def _silence_seconds(gpu_node: GPUNode, now: float) -> float:
    try:
        return now - parse_rfc3339(gpu_node.status.observed_at or "")
    except ValueError:
        return float("inf")
