"""The scheduler plugin and a kube-scheduler of its own, as processes, and jobs for them."""

import asyncio
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from outrider.api.core import Pod, PyTorchJob
from outrider.api.gangplacement import GangPlacement, PlacementState
from outrider.api.names import GANG_GATE, SCHEDULER_NAME
from outrider.api.times import rfc3339
from outrider.kube.client import Client, Selector
from outrider.kube.errors import NotFound
from outrider.kube.kinds import GANGPLACEMENTS, GPUNODES, JOBS, PODS, PYTORCHJOBS
from outrider.workloads import GPU, rank_of
from testbed import processes
from testbed.build import program
from testbed.state import State

LEAF: Final = "network.topology.nvidia.com/leaf"
T = TypeVar("T")
_PATIENCE_SECONDS: Final = 60.0  # for machines that do many things at once
_PLUGIN: Final = "scheduler-plugin"
_SCHEDULER: Final = "outrider-kube-scheduler"
TOLERATION: Final = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}


class Scheduling:
    """Both processes. ``kill`` and ``start`` act on the plugin; ports are free ones of this machine."""

    def __init__(self, state: State, folder: Path, ports: tuple[int, int, int], settings: Mapping[str, object]) -> None:
        self._state = state
        self._extender, self._probes, self._secure = ports
        self._kubeconfig = state.folder / "kubeconfig"
        self._config = folder / "plugin.yaml"
        self._config.write_text(
            json.dumps({"extenderPort": self._extender, "probePort": self._probes, "logLevel": "DEBUG", **settings})
        )
        self._scheduler = folder / "kube-scheduler.yaml"
        self._scheduler.write_text(json.dumps(_scheduler(self._kubeconfig, self._extender)))

    def start(self) -> None:
        """Start the plugin and wait until its filter knows the cluster."""
        environment = {"KUBECONFIG": str(self._kubeconfig), "POD_NAME": "plugin-0", "POD_NAMESPACE": "outrider-system"}
        argv = [sys.executable, "-m", "scheduler_plugin", "--config", self._config]
        processes.spawn(self._state, _PLUGIN, argv, environment)
        _wait(self._ready, lambda: processes.require_running(self._state, _PLUGIN))

    def start_scheduler(self) -> None:
        """Start kube-scheduler."""
        argv = [program("kube-scheduler"), f"--config={self._scheduler}", f"--secure-port={self._secure}"]
        processes.spawn(self._state, _SCHEDULER, [*argv, "--bind-address=127.0.0.1"])

    def kill(self) -> None:
        """SIGKILL the plugin."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        processes.wait_gone([pid], 5.0)

    @property
    def pid(self) -> int:
        """Process ID of the plugin."""
        pid = processes.find(self._state, _PLUGIN)
        assert pid is not None, processes.tail(self._state, _PLUGIN)
        return pid

    @property
    def log(self) -> str:
        """What the plugin logged."""
        return (self._state.folder / "logs" / f"{_PLUGIN}.log").read_text()

    def stop(self) -> None:
        """Stop both."""
        for name in (_SCHEDULER, _PLUGIN):
            processes.stop(self._state, name)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._probes}/readyz", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False


def _wait(done: Callable[[], bool], check: Callable[[], None], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        check()
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def _scheduler(kubeconfig: Path, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 2000, "burst": 4000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": SCHEDULER_NAME}],
        "extenders": [
            {
                "urlPrefix": f"http://127.0.0.1:{port}",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "weight": 20,
                "httpTimeout": "2s",
                "nodeCacheCapable": True,
                "ignorable": True,
            }
        ],
    }


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


async def submit_pytorchjob(client: Client, namespace: str, name: str, workers: int) -> None:
    """Create a PyTorchJob of a Master and workers, and its pods as training-operator makes them.

    Its pods keep running: KWOK ends the pods of a batch Job within seconds.
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
        await create_replica(client, job, role, max(rank - 1, 0))


async def create_replica(client: Client, job: PyTorchJob, role: str, index: int) -> None:
    """Create one pod of a PyTorchJob."""
    name, namespace = job.metadata.name, job.metadata.namespace
    labels = {
        "job": name,
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": job.metadata.uid}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{role}-{index}",
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": pod_spec(),
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
