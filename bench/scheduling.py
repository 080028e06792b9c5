"""Pods a second through a real kube-scheduler with simulated nodes: bare, with Outrider unpinned, with planned gangs.

All in one run, so that the ratios hold; the absolute numbers are those of this machine.
"""

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure, against
from outrider.api.core import Pod
from outrider.api.names import GANG_GATE, SCHEDULER_NAME
from outrider.kube.client import Client, Selector
from outrider.kube.informer import Informer
from outrider.kube.kinds import PODS, PYTORCHJOBS
from outrider.kube.transport import connect
from outrider.workloads import GPU
from testbed import cluster, control_plane
from testbed.build import program
from testbed.scheduling import Scheduling, prepare, running
from testbed.state import State

_TESTBED: Final = "bench-scheduling"
_NODES: Final = 1000
_GANGS: Final = 30
_GANG_PODS: Final = 16
_PODS: Final = _GANGS * _GANG_PODS
_CREATORS: Final = 16
_DEFAULT: Final = "default-scheduler"
_SETTLE_SECONDS: Final = 3.0  # for the API server and the watches to come to rest
_PATIENCE_SECONDS: Final = 300.0
_CRDS: Final = Path(__file__).parent.parent / "charts" / "outrider" / "files" / "crds"


def figures() -> list[Figure]:
    """Measure on a testbed of its own, which is removed afterwards. Raises TestbedError, TimeoutError."""
    cluster.down(_TESTBED)
    try:
        state = cluster.up(_TESTBED, kwok_nodes=_NODES)
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(_measure(state, Path(folder)))
    finally:
        cluster.down(_TESTBED)


async def _measure(state: State, folder: Path) -> list[Figure]:
    kubeconfig = state.folder / "kubeconfig"
    install = [program("kubectl"), f"--kubeconfig={kubeconfig}", "apply", "--server-side", "-f", _CRDS]
    await (await asyncio.create_subprocess_exec(*map(str, install), stdout=asyncio.subprocess.DEVNULL)).wait()
    prepare(state)
    both = Scheduling(state, folder, {})
    both.start()
    both.start_scheduler()
    default, ours = running(state, "kube-scheduler"), both.scheduler_pid
    try:
        async with connect("outrider-bench", kubeconfig=kubeconfig) as client:
            bare = await _phase(state, client, "bare", [default], lambda name: _singles(client, name, _DEFAULT))
            unpinned = await _phase(
                state, client, "unpinned", [ours], lambda name: _singles(client, name, SCHEDULER_NAME)
            )
            pinned = await _phase(state, client, "pinned", [ours, both.pid], lambda name: _gangs(client, name))
            megabytes = _rss_megabytes(both.pid)
    finally:
        both.stop()
    return _figures(bare, unpinned, pinned, megabytes)


def _figures(bare: float, unpinned: float, pinned: float, megabytes: float) -> list[Figure]:
    where = f"{_PODS} pods x 8 GPUs, {_NODES} simulated nodes, {os.cpu_count()} CPUs, first to last bound"
    gangs = f"{_GANGS} gangs of {_GANG_PODS}, planned and pinned"
    return [
        Figure("pods_per_s_bare", round(bare, 1), "pods/s", conditions=f"{where}; the default scheduler, no extender"),
        against("pods_per_s_unpinned", unpinned, "pods/s", bare, f"{where}; single pods; baseline: bare"),
        against("pods_per_s_pinned", pinned, "pods/s", bare, f"{where}; {gangs}; baseline: bare"),
        Figure("rss_mb_scheduler_1000_nodes", round(megabytes, 1), "MB", conditions=f"plugin after {_PODS * 2} pods"),
    ]


async def _phase(
    state: State, client: Client, name: str, pids: Sequence[int], create: Callable[[str], Awaitable[None]]
) -> float:
    """Return the pods bound a second, from the first to the last, for pods that ``create`` makes in a namespace.

    The processes ``pids`` that place them stand still until all pods exist: the pace of creation is not measured.
    """
    api = control_plane.admin(state)
    api.ensure("/api/v1/namespaces", {"metadata": {"name": name}})
    async with _binding_times(client, name) as times:
        with _standing_still(pids):
            await create(name)
            await asyncio.sleep(_SETTLE_SECONDS)
        await _until(lambda: len(times) >= _PODS)
    api.call("DELETE", f"/api/v1/namespaces/{name}")
    await _until(lambda: api.call("GET", f"/api/v1/namespaces/{name}")[0] == 404)
    api.close()
    return (_PODS - 1) / (max(times.values()) - min(times.values()))


@contextmanager
def _standing_still(pids: Sequence[int]) -> Iterator[None]:
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not done():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _binding_times(client: Client, namespace: str) -> AsyncIterator[dict[str, float]]:
    """Yield when each pod of the namespace was seen bound, by name, in seconds of the monotonic clock."""
    times: dict[str, float] = {}

    def note(_: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.node_name:
            times.setdefault(new.metadata.name, time.monotonic())

    informer = Informer(client, PODS, Selector(namespace))
    informer.subscribe(note)
    task = asyncio.create_task(informer.run())
    try:
        yield times
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _singles(client: Client, namespace: str, scheduler: str) -> None:
    bodies = [_pod(f"single-{number}", namespace, scheduler) for number in range(_PODS)]
    await _create_all(client, namespace, bodies)


async def _gangs(client: Client, namespace: str) -> None:
    for number in range(_GANGS):
        name = f"gang-{number}"
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": _GANG_PODS}}}
        meta = {"name": name, "namespace": namespace}
        job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
        uid = (await client.create(PYTORCHJOBS, job, namespace)).metadata.uid
        await _create_all(client, namespace, [_replica(name, namespace, uid, index) for index in range(_GANG_PODS)])


async def _create_all(client: Client, namespace: str, bodies: list[dict[str, Any]]) -> None:
    turns = asyncio.Semaphore(_CREATORS)

    async def create(body: dict[str, Any]) -> None:
        async with turns:
            await client.create(PODS, body, namespace)

    await asyncio.gather(*map(create, bodies))


def _replica(job: str, namespace: str, uid: str, index: int) -> dict[str, Any]:
    body = _pod(f"{job}-{index}", namespace, SCHEDULER_NAME)
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job, "uid": uid, "controller": True}
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)}
    body["metadata"] |= {"ownerReferences": [owner], "labels": labels}
    body["spec"]["schedulingGates"] = [{"name": GANG_GATE}]
    return body


def _pod(name: str, namespace: str, scheduler: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "8"}, "requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [container],
        },
    }


def _rss_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(prog="python -m bench.scheduling", description=__doc__).parse_args()
    for figure in figures():
        print(figure.name, figure.value, figure.unit, figure.ratio, figure.conditions)


if __name__ == "__main__":
    main()
