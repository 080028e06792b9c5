"""Brings the objects about the node in line with what the agent knows: taints, GPUNode status, condition, events.

One round at a time, and rounds are apart by a pause, so a storm of findings costs a handful of writes a second. Every
write is conditional and idempotent; it starts from the watched copies, so that a heartbeat is one request, and a round
that fails is done again from fresh reads, until it succeeds. The taint goes first: it is what keeps work off the
hardware. One failing write does not hold up the others.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from typing import Final

import msgspec

from node_agent.memory import Announced, Memory
from node_agent.metrics import PUBLISHED
from node_agent.publishing.devices import Isolation, isolation
from node_agent.publishing.isolating import DeviceTaints
from node_agent.publishing.objects import (
    condition_patch,
    status_body,
    status_of,
    taint_patch,
    taint_words,
    tells_the_same,
    traceparents,
)
from node_agent.publishing.telling import Message, affected, isolated, messages, state_of
from node_agent.ranks import trace_of
from outrider.api.core import Node, Pod
from outrider.api.gpunode import GPUNode, GPUNodeSpec, Health, Mode, RankState
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.api.names import GPU_CONDITION
from outrider.api.reasons import (
    DEVICE_TAINTED,
    DEVICE_UNTAINTED,
    GPU_RECOVERED,
    GPU_UNHEALTHY,
    NODE_TAINTED,
    NODE_UNTAINTED,
)
from outrider.health.catalogue import Catalogue
from outrider.health.judge import Judgement
from outrider.kube.backoff import delay_seconds
from outrider.kube.client import Client, PatchType
from outrider.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import GPUNODES, NODES, PODS
from outrider.telemetry.traces import span

_LOG: Final = logging.getLogger(__name__)
_RETRY_BASE_SECONDS: Final = 0.1
_RETRY_CAP_SECONDS: Final = 2.0  # an outage's end is seen within it


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a round publishes."""

    memory: Memory
    judgement: Judgement
    ranks: list[RankState]
    catalogue: Catalogue
    holders: dict[str, str] | None = None
    """UUID of each GPU that a pod holds to the pod's UID; None where the kubelet has not told."""
    complete: bool = True
    """False until every probe has spoken: until then nothing is lifted, and nobody is told of a recovery."""


class Publisher:
    """Publishes for one node. ``known`` returns the latest knowledge, ``announced`` stores what users were told."""

    def __init__(  # noqa: PLR0913 - collaborators, all named at the one call
        self,
        client: Client,
        node: str,
        *,
        known: Callable[[], Known | None],
        pods: Callable[[], Iterable[Pod]],
        events: EventRecorder,
        announced: Callable[[Announced], None],
        pause_seconds: float,
        heartbeat_seconds: float,
    ) -> None:
        self._client = client
        self._node = node
        self._known = known
        self._pods = pods
        self._events = events
        self._announced = announced
        self._pause_seconds = pause_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._changed = asyncio.Event()
        self._forced = False
        self._status_at = float("-inf")
        self._traced = Announced()
        self._devices = DeviceTaints(client, node)
        self._isolated: frozenset[str] = frozenset()
        self._seen_node: Node | None = None
        self._seen_gpunode: GPUNode | None = None
        self.published = False
        """True once a whole round has succeeded."""

    def touch(self, *, force: bool = False) -> None:
        """Ask for a round soon; ``force`` writes the status even where only times and steps differ."""
        self._forced |= force
        self._changed.set()

    def node_changed(self, _old: Node | None, new: Node | None) -> None:
        """Take in what the watch says of the node; a round follows where something of ours may have changed."""
        before, self._seen_node = self._seen_node, new
        if _ours(before) != _ours(new):
            self.touch()

    def gpunode_changed(self, _old: GPUNode | None, new: GPUNode | None) -> None:
        """Take in what the watch says of the GPUNode; our own writes come back here too, and ask for nothing."""
        before, self._seen_gpunode = self._seen_gpunode, new
        if before is None or new is None or (before.spec, before.status) != (new.spec, new.status):
            self.touch()

    async def run(self) -> None:
        """Publish until cancelled."""
        failures = 0
        while True:
            await self._wait()
            failures = 0 if await self._round() else failures + 1
            if failures:
                self._seen_node = self._seen_gpunode = None  # read afresh: what the watch told may be old
                self._changed.set()
            await asyncio.sleep(self._rest_seconds(failures))

    def _rest_seconds(self, failures: int) -> float:
        if not failures:
            return self._pause_seconds
        return delay_seconds(failures, base=_RETRY_BASE_SECONDS, cap=_RETRY_CAP_SECONDS, unit=random.random())  # noqa: S311 - spreads load, guards nothing

    async def _wait(self) -> None:
        left_seconds = self._status_at + self._heartbeat_seconds - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, left_seconds) if self.published else None):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _round(self) -> bool:
        """Do all writes that are due; return False where one has to be done again."""
        known = self._known()
        if known is None:
            return True
        with ExitStack() as spans:
            self._open_spans(spans, known)
            done = [await self._attempt(work, known) for work in (self._taint, self._status, self._condition)]
        complete = all(done) and (not known.complete or await self._attempt(self._tell, known))
        self.published |= complete
        return complete

    async def _attempt(self, work: Callable[[Known], Awaitable[None]], known: Known) -> bool:
        try:
            await work(known)
        except (Conflict, Invalid, AlreadyExists) as error:  # changed under us: read again and decide again
            _LOG.info("object changed meanwhile, again", extra={"node": self._node, "problem": str(error)})
        except KubeError as error:
            _LOG.warning("not published, will retry", extra={"node": self._node, "problem": str(error)})
        else:
            PUBLISHED.labels("done").inc()
            return True
        PUBLISHED.labels("failed").inc()
        return False

    async def _taint(self, known: Known) -> None:
        node, spec = await self._node_now(), await self._spec()
        wanted = await self._isolate(known, node, spec.mode)
        self._isolated = wanted.isolated
        patch = taint_patch(node, wanted.taint, may_remove=_sees(known))
        if not patch:
            return
        self._seen_node = await self._client.patch(NODES, self._node, patch, PatchType.JSON)
        await self._tell_taint(node, wanted.taint, taint_words(wanted.taint, spec, known.judgement.message))

    async def _isolate(self, known: Known, node: Node, mode: Mode) -> Isolation:
        """Taint single devices where that is enough, and return what is left to do for the node."""
        findings, judgement = known.memory.findings, known.judgement
        sick = any(opinion.verdict.hard for opinion in judgement.gpus.values())
        devices = await self._devices.devices(node) if sick else {}
        wanted = isolation(findings, judgement, devices, self._node, mode)
        try:
            made, gone = await self._devices.apply(wanted, may_remove=_sees(known))
        except (Forbidden, Invalid) as error:
            self._devices.absent(error)
            return isolation(findings, judgement, {}, self._node, mode)
        words = f": {judgement.message}"
        for name in made:
            await self._tell_device(node, f"no new GPU work on one GPU (DeviceTaintRule {name}){words}", made=True)
        for name in gone:
            await self._tell_device(node, f"DeviceTaintRule {name} lifted{words}", made=False)
        return wanted

    async def _tell_device(self, node: Node, message: str, *, made: bool) -> None:
        reason = DEVICE_TAINTED if made else DEVICE_UNTAINTED
        await self._events.emit(node, NODES, reason=reason, message=message, warning=made)

    async def _node_now(self) -> Node:
        if self._seen_node is None:
            self._seen_node = await self._client.get(NODES, self._node)
        return self._seen_node

    async def _spec(self) -> GPUNodeSpec:
        try:
            return (await self._gpunode_now()).spec
        except NotFound:
            return GPUNodeSpec()

    async def _gpunode_now(self) -> GPUNode:
        if self._seen_gpunode is None:
            self._seen_gpunode = await self._client.get(GPUNODES, self._node)
        return self._seen_gpunode

    async def _tell_taint(self, node: Node, wanted: str | None, message: str) -> None:
        reason = NODE_TAINTED if wanted else NODE_UNTAINTED
        _LOG.info("taint changed", extra={"node": self._node, "taint": wanted or ""})
        await self._events.emit(node, NODES, reason=reason, message=message, warning=wanted is not None)

    async def _status(self, known: Known) -> None:
        existing = await self._existing()
        pods = {pod.metadata.uid: pod.key for pod in self._pods()}
        status = status_of(known.memory, known.judgement, known.ranks, existing, time.time(), pods)
        status = msgspec.structs.replace(status, gpus=isolated(status.gpus, self._isolated))
        due = time.monotonic() - self._status_at >= self._heartbeat_seconds
        if due or self._forced or not tells_the_same(existing.status, status):
            self._forced = False
            body = status_body(existing, status)
            self._seen_gpunode = await self._client.replace(GPUNODES, self._node, body, subresource="status")
            self._status_at = time.monotonic()

    async def _existing(self) -> GPUNode:
        try:
            return await self._gpunode_now()
        except NotFound:
            node = await self._node_now()
            owner = OwnerReference(api_version="v1", kind="Node", name=self._node, uid=node.metadata.uid)
            metadata = ObjectMeta(name=self._node, owner_references=[owner])  # goes with its node
            return await self._client.create(GPUNODES, GPUNode(metadata=metadata))

    async def _condition(self, known: Known) -> None:
        patch = condition_patch(await self._node_now(), known.judgement, time.time())
        if patch is not None:
            self._seen_node = await self._client.patch(
                NODES, self._node, patch, PatchType.STRATEGIC, subresource="status"
            )

    def _open_spans(self, spans: ExitStack, known: Known) -> None:
        """At a new hard verdict: one span in the trace of each job that it touches, from verdict to publication."""
        opinion, news = known.judgement.node, state_of(known.judgement)
        if not opinion.verdict.hard or news in (known.memory.announced, self._traced):
            return
        self._traced = news
        pods = {pod.key: pod for message in self._messages(known) for pod in self._affected(known, message)}
        for context in traceparents({key: trace_of(pod) for key, pod in pods.items()}):
            attributes = {"node": self._node, "verdict": str(opinion.verdict), "reason": opinion.reason}
            spans.enter_context(span("agent.verdict", context, **attributes, score=opinion.score))

    def _messages(self, known: Known) -> list[Message]:
        return messages(known.memory, known.judgement, known.catalogue, self._node)

    def _affected(self, known: Known, message: Message) -> list[Pod]:
        return affected(self._pods(), message.gpu, known.holders)

    async def _tell(self, known: Known) -> None:
        """Tell users of each change of a hard verdict, once, on the node and on the pods that it touches."""
        after = state_of(known.judgement)
        if known.memory.announced == after:
            return
        for message in self._messages(known):
            reason = GPU_UNHEALTHY if message.sick else GPU_RECOVERED
            node = await self._node_now()
            await self._events.emit(node, NODES, reason=reason, message=message.text, warning=message.sick)
            for pod in self._affected(known, message):
                await self._events.emit(pod, PODS, reason=reason, message=message.text, warning=message.sick)
        self._announced(after)


def _sees(known: Known) -> bool:
    return known.complete and known.judgement.node.health is not Health.UNKNOWN


def _ours(node: Node | None) -> object:
    """What a round looks at; a kubelet's heartbeat changes none of it."""
    if node is None:
        return None
    conditions = [one for one in node.status.conditions if one.type == GPU_CONDITION]
    return (node.metadata.uid, node.spec.taints, conditions)
