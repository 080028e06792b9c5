"""The cluster as the command line sees it, fetched once from API objects alone."""

import asyncio
from dataclasses import dataclass, field

from outrider.api.core import Node, Pod
from outrider.api.gangplacement import GangPlacement
from outrider.api.gpunode import GPUNode, RankState
from outrider.api.names import JOB_UID_LABEL
from outrider.api.remediation import Remediation
from outrider.kube.client import Client, Selector
from outrider.kube.kinds import GANGPLACEMENTS, GPUNODES, NODES, PODS, REMEDIATIONS
from outrider.workloads import job_uid_of


@dataclass(frozen=True)
class Picture:
    """What `status` and `why` look at; ``now`` in seconds since 1970."""

    now: float
    nodes: dict[str, Node] = field(default_factory=dict)
    gpu_nodes: dict[str, GPUNode] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    placements: list[GangPlacement] = field(default_factory=list)
    episodes: list[Remediation] = field(default_factory=list)

    def ranks_of(self, pod: Pod) -> list[RankState]:
        """Return what the pod's ranks last reported, in order of rank."""
        gpu_node = self.gpu_nodes.get(pod.spec.node_name)
        ranks = gpu_node.status.ranks if gpu_node else []
        return sorted((rank for rank in ranks if rank.pod_uid == pod.metadata.uid), key=lambda rank: rank.rank)

    def job_pods(self, job_uid: str, namespace: str) -> list[Pod]:
        """Return the pods of a job, ended ones too."""
        return [pod for pod in self.pods if job_uid_of(pod) == job_uid and pod.metadata.namespace == namespace]


async def fetch_picture(client: Client, now: float) -> Picture:
    """Read everything that Outrider publishes. Raises KubeError, NotFound where the resources are not installed."""
    nodes, gpu_nodes, pods, placements, episodes = await asyncio.gather(
        client.list(NODES),
        client.list(GPUNODES),
        client.list(PODS, Selector(labels=JOB_UID_LABEL)),
        client.list(GANGPLACEMENTS),
        client.list(REMEDIATIONS),
    )
    return Picture(
        now=now,
        nodes={node.metadata.name: node for node in nodes.items},
        gpu_nodes={node.metadata.name: node for node in gpu_nodes.items},
        pods=pods.items,
        placements=placements.items,
        episodes=episodes.items,
    )
