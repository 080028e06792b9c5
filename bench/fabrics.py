"""Simulated clusters for the bench of plans: regular ones of any size, and ragged ones that others already use."""

import random
from collections.abc import Iterator, Sequence
from typing import Final

from outrider.api.core import Container, Node, NodeStatus, Pod, PodSpec, PodStatus, ResourceRequirements
from outrider.api.gpunode import GPUNode, GPUNodeStatus, Health
from outrider.api.meta import ObjectMeta
from outrider.api.times import rfc3339
from outrider.topology import levels_from
from outrider.workloads import GPU
from scheduler_plugin.cluster.members import Member, member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.world import World
from scheduler_plugin.placing.gang import Gang
from scheduler_plugin.rules import Rules

NOW: Final = 1_800_000_000.0
_LABEL: Final = "network.topology.nvidia.com"
_RULES: Final = Rules(levels_from("nvidia"))
# Leaf groups of one real cluster of 64 nodes (marin-community/marin, issue 6950).
_LEAVES: Final = (1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 6, 6, 6, 8, 11)
_GPUS: Final = 8


def regular(nodes: int, *, busy: float = 0.0) -> Snapshot:
    """Return a cluster of leaves of 16 and blocks of 512, with that share of its nodes partly or wholly in use."""
    draw = random.Random(nodes)
    world = World(_RULES)
    for number in range(nodes):
        world.on_node(None, _node(f"n{number}", f"l{number // 16}", f"b{number // 512}"))
        score = draw.choice((100, 95, 85, 70, 40)) if busy else 100
        world.on_gpunode(None, _health(f"n{number}", score))
        if draw.random() < busy:
            world.on_pod(None, _running(f"n{number}", draw.randint(1, _GPUS)))
    return world.publish()


def ragged(seed: int) -> Snapshot:
    """Return a cluster of uneven blocks and leaves: some untouched, some full, most with nodes partly in use."""
    draw = random.Random(seed)
    world = World(_RULES)
    for block in range(draw.randint(2, 8)):
        for leaf in range(draw.randint(3, 15)):
            busy = draw.choice((0.0, 0.0, 0.2, 0.4, 0.7, 1.0))
            for number in range(draw.choice(_LEAVES)):
                name = f"b{block}-l{leaf}-n{number}"
                world.on_node(None, _node(name, f"b{block}-l{leaf}", f"b{block}"))
                if draw.random() < busy:
                    world.on_pod(None, _running(name, draw.randint(1, _GPUS)))
    return world.publish()


def gang(pods: int, gpus: int = _GPUS) -> Gang:
    """Return a gang of pods that are alike."""
    return Gang("bench", tuple(_members(pods, gpus)))


def _members(pods: int, gpus: int) -> Iterator[Member]:
    for rank in range(pods):
        yield member(_pod(f"train-{rank}", gpus), rank)


def _node(name: str, leaf: str, block: str) -> Node:
    labels = {f"{_LABEL}/leaf": leaf, f"{_LABEL}/spine": block, "kubernetes.io/hostname": name}
    allocatable = {GPU: str(_GPUS), "cpu": "128", "memory": "1Ti", "pods": "110"}
    return Node(metadata=ObjectMeta(name=name, uid=name, labels=labels), status=NodeStatus(allocatable=allocatable))


def _health(name: str, score: int) -> GPUNode:
    status = GPUNodeStatus(health=Health.HEALTHY, score=score, observed_at=rfc3339(NOW - 1))
    return GPUNode(metadata=ObjectMeta(name=name, uid=f"health-{name}"), status=status)


def _running(node: str, gpus: int) -> Pod:
    pod = _pod(f"busy-{node}", gpus)
    return Pod(
        metadata=pod.metadata,
        spec=PodSpec(node_name=node, containers=pod.spec.containers),
        status=PodStatus(phase="Running"),
    )


def _pod(name: str, gpus: int) -> Pod:
    requests = {GPU: str(gpus), "cpu": "8", "memory": "64Gi"}
    container = Container(name="main", resources=ResourceRequirements(requests=requests))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ml", uid=name),
        spec=PodSpec(containers=[container]),
        status=PodStatus(),
    )


def leaves_of(snapshot: Snapshot, names: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the leaves that nodes are under."""
    return {snapshot.nodes[name].place.path for name in names}
