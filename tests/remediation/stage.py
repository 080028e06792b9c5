"""Sets up nodes, a real Job and what kubelets and agents would write, on a real API server."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from outrider.api.checkpoint import CheckpointRequest
from outrider.api.core import Node, Pod
from outrider.api.gpunode import Finding, GPUNode, Health, RankState, Verdict
from outrider.api.meta import ObjectMeta
from outrider.api.names import (
    CHECKPOINT_REQUEST_ANNOTATION,
    JOB_UID_LABEL,
    RACK_LABEL,
    TRACEPARENT_ANNOTATION,
    UNHEALTHY_TAINT,
)
from outrider.api.remediation import Remediation
from outrider.api.times import rfc3339
from outrider.kube.client import Client, PatchType, Selector
from outrider.kube.errors import NotFound
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import EVENTS, GPUNODES, JOBS, NODES, PODS, REMEDIATIONS
from outrider.telemetry.traces import job_traceparent
from remediation.cache import Cache
from remediation.config import Config
from remediation.controller import Controller
from remediation.reporting import Reporter

T = TypeVar("T")
INDEX = "batch.kubernetes.io/job-completion-index"


async def until(look: Callable[[], Awaitable[T | None]], what: str, seconds: float = 20.0) -> T:
    """Look until there is something to see. Raises AssertionError that names what did not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := await look():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"not seen within {seconds} s: {what}")


class Stage:
    """Nodes n0 to n3 (or more) of one namespace, in one rack, and the Job ``train`` on the first of them."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.size = 0

    def node(self, number: int) -> str:
        return f"{self.namespace}-n{number}"

    async def add_nodes(self, count: int) -> None:
        self.size = count
        for number in range(count):
            name = self.node(number)
            labels = {RACK_LABEL: self.namespace}
            await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}})
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            await self.client.patch(NODES, name, ready, PatchType.STRATEGIC, subresource="status")
            await self.client.create(GPUNODES, GPUNode(metadata=ObjectMeta(name=name)))
            await self.judge(number, Verdict.NONE)

    async def remove(self) -> None:
        for episode in (await self.client.list(REMEDIATIONS)).items:
            if self.namespace in (episode.spec.node + (episode.spec.domain.name if episode.spec.domain else "")):
                await self.client.delete(REMEDIATIONS, episode.metadata.name)
        for number in range(self.size):
            await self.client.delete(GPUNODES, self.node(number))
            await self.client.delete(NODES, self.node(number))

    async def status(self, number: int, **changes: object) -> None:
        """Write as the node's agent does."""
        old = await self.client.get(GPUNODES, self.node(number))
        changes.setdefault("observed_at", rfc3339(time.time()))
        status = msgspec.structs.replace(old.status, **changes)
        body = msgspec.structs.replace(old, status=status)
        await self.client.replace(GPUNODES, self.node(number), body, subresource="status")

    async def judge(self, number: int, verdict: Verdict, reason: str = "xid/79", **more: object) -> None:
        health = Health.UNHEALTHY if verdict.hard else Health.HEALTHY
        reason = reason if verdict.hard else ""
        await self.status(number, verdict=verdict, reason=reason, health=health, boot_id="boot-1", score=0, **more)

    async def find(self, number: int, code: str, verdict: Verdict, at: float) -> None:
        """Report one finding as the node's agent does."""
        made = Finding(code=code, first_seen=rfc3339(at), last_seen=rfc3339(at), verdict=verdict)
        await self.judge(number, verdict, code, findings=[made])

    async def rack_episode(self) -> Remediation | None:
        found = (await self.client.list(REMEDIATIONS)).items
        return next((one for one in found if one.spec.domain and one.spec.domain.name == self.namespace), None)

    async def add_job(self, size: int) -> str:
        """Create an Indexed Job, bind its pods to n0, n1, ... and let them run. Returns the Job's UID."""
        job = await self.client.create(JOBS, job_manifest(size), self.namespace)
        uid = job.metadata.uid
        for number in range(size):
            await self.start(uid, number, number)
        return uid

    async def start(self, uid: str, rank: int, number: int) -> Pod:
        """Bind the rank's waiting pod to a node and report it running, as webhook, scheduler and kubelet would."""

        async def waiting() -> Pod | None:
            return next((pod for pod in await self.pods() if rank_of(pod) == rank and not pod.spec.node_name), None)

        pod = await until(waiting, f"a waiting pod of rank {rank}")
        name = pod.metadata.name
        meta = {"labels": {JOB_UID_LABEL: uid}, "annotations": {TRACEPARENT_ANNOTATION: job_traceparent(uid)}}
        await self.client.patch(PODS, name, {"metadata": meta}, PatchType.MERGE, self.namespace)
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node(number)}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self.client.create(PODS, binding, self.namespace, "binding", name)
        running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        return await self.client.patch(PODS, name, running, PatchType.MERGE, self.namespace, "status")

    async def pods(self) -> list[Pod]:
        return (await self.client.list(PODS, Selector(namespace=self.namespace))).items

    async def report(self, number: int, step: int, acknowledged: str = "", state: str = "") -> None:
        """Report the live ranks on a node, as its agent does from their beacons."""
        here = [pod for pod in await self.pods() if pod.spec.node_name == self.node(number)]
        saved = step if state else -1
        ranks = [
            RankState(
                pod_uid=pod.metadata.uid,
                rank=rank_of(pod),
                step=step,
                checkpoint_step=saved,
                acknowledged=acknowledged,
                acknowledged_state=state,
                observed_at=rfc3339(time.time()),
            )
            for pod in here
        ]
        await self.status(number, ranks=ranks)

    async def requests(self) -> dict[int, CheckpointRequest]:
        """Return the checkpoint request on each rank's pod."""
        texts = {rank_of(pod): pod.metadata.annotations.get(CHECKPOINT_REQUEST_ANNOTATION) for pod in await self.pods()}
        return {rank: msgspec.json.decode(text, type=CheckpointRequest) for rank, text in texts.items() if text}

    async def episode(self, number: int) -> Remediation | None:
        found = (await self.client.list(REMEDIATIONS)).items
        return next((one for one in found if one.spec.node == self.node(number)), None)

    async def message(self, number: int, text: str) -> Remediation:
        async def seen() -> Remediation | None:
            episode = await self.episode(number)
            return episode if episode and text in episode.status.message else None

        return await until(seen, f"an episode that says {text!r}")

    async def tainted(self, number: int) -> bool:
        try:
            node: Node = await self.client.get(NODES, self.node(number))
        except NotFound:
            return False
        return any(taint.key == UNHEALTHY_TAINT for taint in node.spec.taints)

    async def events(self, reason: str) -> set[str]:
        """Return the kinds of objects that got an event of this reason about our nodes or pods."""
        found = [event for event in (await self.client.list(EVENTS)).items if event.reason == reason]
        ours = [
            event for event in found if self.namespace in event.involved_object.name + event.involved_object.namespace
        ]
        return {event.involved_object.kind for event in ours}


def rank_of(pod: Pod) -> int:
    return int(pod.metadata.annotations[INDEX])


def job_manifest(size: int) -> dict[str, Any]:
    """Return an Indexed Job that the test itself schedules; a real Job controller makes and replaces its pods."""
    container = {"name": "train", "image": "none"}
    spec = {"containers": [container], "restartPolicy": "Never", "schedulerName": "the-test"}
    return {
        "metadata": {"name": "train"},
        "spec": {
            "completions": size,
            "parallelism": size,
            "completionMode": "Indexed",
            "backoffLimit": 100,
            "template": {"metadata": {"labels": {"app": "train"}}, "spec": spec},
        },
    }


@contextlib.asynccontextmanager
async def controller(
    client: Client, config: Config, may_act: Callable[[], bool] = lambda: True
) -> AsyncIterator[Controller]:
    """Run a controller that believes to hold the lease, until the block ends."""
    cache = Cache(client)
    made = Controller(
        client, cache, Reporter(EventRecorder(client, "outrider-remediation")), config=config, may_act=may_act
    )
    tasks = [asyncio.create_task(cache.run()), asyncio.create_task(made.run())]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
