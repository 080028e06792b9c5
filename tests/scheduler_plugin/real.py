"""Jobs, pods and waiting for the tests on a real scheduler."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement, PlacementState
from outrider.api.kubeflow import PyTorchJob
from outrider.api.names import GANG_GATE, JOB_UID_LABEL, SCHEDULER_NAME
from outrider.api.times import rfc3339
from outrider.kube.client import Client, Selector
from outrider.kube.errors import NotFound
from outrider.kube.kinds import GANGPLACEMENTS, GPUNODES, JOBS, PODS, PYTORCHJOBS
from outrider.workloads import GPU, rank_of

LEAF: Final = "network.topology.nvidia.com/leaf"
T = TypeVar("T")
_PATIENCE_SECONDS: Final = 60.0  # for machines that do many things at once
TOLERATION: Final = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}


def pod_spec(*, gpus: int = 8, gated: bool = True, selector: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the spec of a pod as the webhook would leave it."""
    return {
        "schedulerName": SCHEDULER_NAME,
        "schedulingGates": [{"name": GANG_GATE}] if gated else [],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"type": "kwok", **(selector or {})},
        "tolerations": [TOLERATION],
        "containers": [
            {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}, "requests": {"cpu": "1"}}}
        ],
    }


async def submit(client: Client, namespace: str, name: str, size: int, **spec: Any) -> None:
    """Create an Indexed Job."""
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "parallelism": size,
            "completions": size,
            "completionMode": "Indexed",
            "backoffLimit": 100,
            "template": {"metadata": {"labels": {"job": name}}, "spec": pod_spec(**spec)},
        },
    }
    await client.create(JOBS, body, namespace)


async def submit_pytorchjob(client: Client, namespace: str, name: str, workers: int, **spec: Any) -> None:
    """Create a PyTorchJob of a Master and workers, and its pods as training-operator makes them.

    Its pods keep running: KWOK ends the pods of a batch Job within seconds. ``spec`` replaces fields of their specs.
    """
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": workers}}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": roles},
    }
    job = await client.create(PYTORCHJOBS, body, namespace)
    roles_of_ranks = ["master", *["worker"] * workers]
    for rank, role in enumerate(roles_of_ranks):
        await create_replica(client, job, role, max(rank - 1, 0), **spec)


async def create_replica(client: Client, job: PyTorchJob, role: str, index: int, suffix: str = "", **spec: Any) -> None:
    """Create one pod of a PyTorchJob.

    A successor needs a name of its own here, by ``suffix``: KWOK deletes by name and may hit the pod that follows.
    """
    name, namespace = job.metadata.name, job.metadata.namespace
    labels = {
        "job": name,
        JOB_UID_LABEL: job.metadata.uid,
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": job.metadata.uid}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{role}-{index}{suffix}",
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": pod_spec() | spec,
    }
    await client.create(PODS, body, namespace)


async def pods_of(client: Client, namespace: str, name: str) -> list[Pod]:
    """Return a job's pods that are not on their way out, by rank."""
    page = await client.list(PODS, Selector(namespace, labels=f"job={name}"))
    here = [pod for pod in page.items if not pod.metadata.deletion_timestamp]
    return sorted(here, key=lambda pod: rank_of(pod) or 0)


async def bound(client: Client, namespace: str, name: str, size: int) -> list[Pod]:
    """Return a job's pods once all are bound."""

    async def all_bound() -> list[Pod] | None:
        pods = await pods_of(client, namespace, name)
        return pods if len(pods) == size and all(pod.spec.node_name for pod in pods) else None

    return await eventually(all_bound)


async def node_of(client: Client, namespace: str, name: str) -> str:
    """Return the node of a pod once it has one."""

    async def there() -> str:
        return (await client.get(PODS, name, namespace)).spec.node_name

    return await eventually(there)


async def placement_of(client: Client, namespace: str, name: str) -> GangPlacement | None:
    """Return a placement, None where there is none yet."""
    try:
        return await client.get(GANGPLACEMENTS, name, namespace)
    except NotFound:
        return None


async def placed(client: Client, namespace: str, name: str, state: PlacementState) -> GangPlacement:
    """Return a placement once it is in that state."""

    async def there() -> GangPlacement | None:
        placement = await placement_of(client, namespace, name)
        return placement if placement is not None and placement.status.state is state else None

    return await eventually(there)


async def planned(client: Client, namespace: str, name: str) -> GangPlacement:
    """Return a placement as soon as it has a plan."""

    async def there() -> GangPlacement | None:
        placement = await placement_of(client, namespace, name)
        return placement if placement is not None and placement.status.ranks else None

    return await eventually(there)


async def eventually(look: Callable[[], Awaitable[T | None]]) -> T:
    """Return what ``look`` finds once it finds something. Raises TimeoutError."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            found = await look()
            if found:
                return found
            await asyncio.sleep(0.02)


async def set_health(client: Client, node: str, verdict: str, health: str, reason: str = "") -> None:
    """Write a node's GPUNode as its agent would."""
    body = {"apiVersion": "outrider.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": node}}
    there = await client.create(GPUNODES, body)
    status = {"verdict": verdict, "health": health, "score": 0, "reason": reason, "observedAt": rfc3339(time.time())}
    meta = {"name": node, "resourceVersion": there.metadata.resource_version}
    await client.replace(GPUNODES, node, {**body, "metadata": meta, "status": status}, subresource="status")
