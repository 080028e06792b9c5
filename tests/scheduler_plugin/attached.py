"""Further kube-schedulers on the testbed, each with extenders of a test's choice, and our plugin inside the test."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from outrider.kube.client import Client, Selector
from outrider.kube.kinds import EVENTS, PODS
from scheduler_plugin.app import Plugin
from scheduler_plugin.config import Config
from testbed import processes
from testbed.build import program
from testbed.ports import free_port
from testbed.state import State
from tests.scheduler_plugin.real import eventually, pod_spec

NAMESPACE: Final = "outrider-system"


def extender(url: str, **changes: Any) -> dict[str, Any]:
    """Return what KubeSchedulerConfiguration says of our extender."""
    return {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 20,
        "httpTimeout": "2s",
        "nodeCacheCapable": True,
        "ignorable": False,
        **changes,
    }


@contextmanager
def kube_scheduler(state: State, folder: Path, name: str, *extenders: Mapping[str, Any]) -> Iterator[str]:
    """Run a kube-scheduler that takes the pods of schedulerName ``name``."""
    config = folder / f"{name}.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(state.folder / "kubeconfig"), "qps": 2000, "burst": 4000},
                "leaderElection": {"leaderElect": False},
                "percentageOfNodesToScore": 100,
                # A pod that failed is tried again at once: tests wait for that.
                "podInitialBackoffSeconds": 1,
                "podMaxBackoffSeconds": 1,
                "profiles": [{"schedulerName": name}],
                "extenders": list(extenders),
            }
        )
    )
    argv = [program("kube-scheduler"), f"--config={config}", f"--secure-port={free_port()}", "--bind-address=127.0.0.1"]
    processes.spawn(state, name, argv)
    try:
        yield name
    finally:
        processes.stop(state, name)


@asynccontextmanager
async def plugin_here(client: Client, *, leases: str = NAMESPACE, **settings: Any) -> AsyncIterator[Plugin]:
    """Run our plugin in the test's own process, ready to answer; another one may lead, by the ``leases`` namespace."""
    config = Config(extender_port=0, **settings)
    plugin = Plugin(client, config, config.rules(), "plugin-here", leases)
    task = asyncio.create_task(plugin.run())
    try:

        async def ready() -> bool:
            return bool(plugin.port) and plugin.readiness() is None

        await eventually(ready)
        yield plugin
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def create(client: Client, namespace: str, name: str, scheduler: str, **changes: Any) -> None:
    """Create a pod of one GPU, or as ``changes`` of its spec say, for a scheduler."""
    gpus, selector, metadata = changes.pop("gpus", 1), changes.pop("selector", None), changes.pop("metadata", {})
    spec = {**pod_spec(gated=False, gpus=gpus, selector=selector), "schedulerName": scheduler, **changes}
    meta = {"name": name, "namespace": namespace, **metadata}
    await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, namespace)


async def verdict(client: Client, namespace: str, name: str, reason: str = "Unschedulable") -> str:
    """Return what kube-scheduler says of a pod that it could not place, once it says it for this reason."""

    async def said() -> str:
        conditions = (await client.get(PODS, name, namespace)).status.conditions
        found = [one.message for one in conditions if one.type == "PodScheduled" and one.reason == reason]
        return found[0] if found else ""

    return await eventually(said)


async def event_of(client: Client, namespace: str, reason: str) -> str:
    """Return the text of the first event with that reason."""

    async def told() -> str:
        events = (await client.list(EVENTS, Selector(namespace))).items
        return next((event.message for event in events if event.reason == reason), "")

    return await eventually(told)
