"""Pods on a testbed with simulated nodes: create them, follow what becomes of them, clear them away."""

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from outrider.api.core import Pod
from outrider.api.names import GANG_GATE, SCHEDULER_NAME, WHY_ANNOTATION
from outrider.kube.client import Client, Selector
from outrider.kube.informer import Informer
from outrider.kube.kinds import PODS, PYTORCHJOBS
from outrider.workloads import GPU
from testbed import control_plane, labels, processes
from testbed.state import State

DEFAULT_SCHEDULER: Final = "default-scheduler"
_CREATORS: Final = 16
_PATIENCE_SECONDS: Final = 300.0
_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Load:
    """Pods of one namespace. Times are seconds of the monotonic clock, by pod name, when a watch saw it first.

    ``released`` has when a pod had no gate, ``bound`` when it got its node, ``refused`` when its condition said that no
    node fits, ``told`` when our annotation said why it waits; ``nodes`` has the node of each bound pod, ``created``
    when the last one was created.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.bound: dict[str, float] = {}
        self.refused: dict[str, float] = {}
        self.told: dict[str, float] = {}
        self.released: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.created = 0.0

    def note(self, _: Pod | None, pod: Pod | None) -> None:
        """Take a pod as the watch shows it."""
        if pod is None:
            return
        now, name = time.monotonic(), pod.metadata.name
        if not pod.spec.scheduling_gates:
            self.released.setdefault(name, now)
        if pod.spec.node_name:
            self.bound.setdefault(name, now)
            self.nodes[name] = pod.spec.node_name
        elif WHY_ANNOTATION in pod.metadata.annotations:
            self.told.setdefault(name, now)
        if any(one.type == "PodScheduled" and one.reason == "Unschedulable" for one in pod.status.conditions):
            self.refused.setdefault(name, now)

    async def singles(self, count: int, scheduler: str, *, gpus: int = 8, selector: Mapping[str, str] = {}) -> None:
        """Create pods that belong together in no way."""
        await self._create([pod(f"single-{n}", self.namespace, scheduler, gpus, selector) for n in range(count)])

    async def gangs(self, count: int, size: int, *, selector: Mapping[str, str] = {}) -> None:
        """Create PyTorchJobs with all their pods, as training-operator and the webhook would leave them."""
        for number in range(count):
            await self._gang(f"gang-{number}", size, selector)

    async def _gang(self, name: str, size: int, selector: Mapping[str, str]) -> None:
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": size}}}
        meta = {"name": name, "namespace": self.namespace}
        job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
        uid = (await self.client.create(PYTORCHJOBS, job, self.namespace)).metadata.uid
        bodies = [pod(f"{name}-{index}", self.namespace, SCHEDULER_NAME, 8, selector) for index in range(size)]
        for index, body in enumerate(bodies):
            _join(body, name, uid, index)
        await self._create(bodies)

    async def _create(self, bodies: Sequence[dict[str, Any]]) -> None:
        turns = asyncio.Semaphore(_CREATORS)

        async def create(body: dict[str, Any]) -> None:
            async with turns:
                await self.client.create(PODS, body, self.namespace)

        await asyncio.gather(*map(create, bodies))
        self.created = time.monotonic()

    async def until(self, moments: Mapping[str, float], count: int) -> None:
        """Wait until that many pods have come so far. Raises TimeoutError."""
        await until(lambda: len(moments) >= count)

    def seconds_after_creation(self, moments: Mapping[str, float]) -> float:
        """Return the seconds from the last pod created to the last of the moments."""
        return max(moments.values()) - self.created

    def pods_per_second(self) -> float:
        """Return the pace from the first pod bound to the last."""
        return (len(self.bound) - 1) / (max(self.bound.values()) - min(self.bound.values()))

    def domains(self, level: str) -> list[int]:
        """Return how many domains of a level (a label's last part) each job's pods are spread over."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for name, node in self.nodes.items():
            place = labels.simulated("h100", int(node.removeprefix("kwok-")))
            found[name.rpartition("-")[0]].add(place[f"network.topology.nvidia.com/{level}"])
        return [len(domains) for domains in found.values()]


@asynccontextmanager
async def load(state: State, client: Client, namespace: str) -> AsyncIterator[Load]:
    """Yield a namespace to load, and remove it, with all its pods, afterwards."""
    with closing(control_plane.admin(state)) as api:
        path = f"/api/v1/namespaces/{namespace}"
        api.ensure("/api/v1/namespaces", {"metadata": {"name": namespace}})
        informer = Informer(client, PODS, Selector(namespace))
        followed = Load(client, namespace)
        informer.subscribe(followed.note)
        task = asyncio.create_task(informer.run())
        try:
            await informer.synced.wait()
            yield followed
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            api.call("DELETE", path)
        await until(lambda: bool(api.call("GET", path)[0] == 404))


async def until(done: Callable[[], bool]) -> None:
    """Wait for what happens in other processes. Raises TimeoutError."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not done():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.02)


@contextmanager
def standing_still(pids: Sequence[int]) -> Iterator[None]:
    """Stop the processes for the length of a with block: what happens meanwhile waits for them."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


class CpuTime:
    """CPU seconds used since it was made by a testbed's processes and by this one, by name, children included."""

    def __init__(self, state: State) -> None:
        self._pids = {name: processes.find(state, name) for name in processes.names(state)} | {"bench": os.getpid()}
        self._began = self._now()

    def used(self) -> dict[str, float]:
        """Return what each has used, the most first."""
        now = self._now()
        used = {name: round(now[name] - self._began.get(name, 0.0), 2) for name in now}
        return dict(sorted(used.items(), key=lambda entry: -entry[1]))

    def _now(self) -> dict[str, float]:
        own = {pid for pid in self._pids.values() if pid is not None}  # this process has started some of the others
        families = {name: {pid, *(_family(pid) - own)} for name, pid in self._pids.items() if pid is not None}
        return {name: sum(map(_cpu_seconds, family)) for name, family in families.items()}


def rss_megabytes(pid: int) -> float:
    """Return the resident memory of a process and its children, shared pages counted in each."""
    lines = (line for one in _family(pid) for line in Path(f"/proc/{one}/status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def _family(pid: int) -> set[int]:
    """Return the process and its children."""
    return {pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())}


def _join(body: dict[str, Any], job: str, uid: str, index: int) -> None:
    """Make the pod one of its job's: owner, rank and gate."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job, "uid": uid, "controller": True}
    ranks = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)}
    body["metadata"] |= {"ownerReferences": [owner], "labels": ranks}
    body["spec"]["schedulingGates"] = [{"name": GANG_GATE}]


def pod(name: str, namespace: str, scheduler: str, gpus: int, selector: Mapping[str, str]) -> dict[str, Any]:
    """Return a pod that may run on simulated nodes."""
    resources = {"limits": {GPU: str(gpus)}, "requests": {"cpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": dict(selector),
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }
