"""Brings the node's objects in line with what the agent knows: taint, GPUNode status, node condition, events.

One round at a time, and rounds are apart by a pause, so a storm of findings costs a handful of writes a second. Every
write is conditional and idempotent; a round that fails is done again, from fresh reads, until it succeeds. The taint
goes first: it is what keeps work off the hardware. One failing write does not hold up the others.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from typing import Final

import msgspec

from node_agent.judging import Announced, Memory
from node_agent.metrics import PUBLISHED
from node_agent.publishing import (
    condition_patch,
    status_body,
    status_of,
    taint_patch,
    taint_words,
    tells_the_same,
    traceparents,
    wanted_taint,
)
from node_agent.ranks import trace_of
from outrider.api.core import Node, Pod
from outrider.api.gpunode import GPUNode, Health, Mode, RankState
from outrider.api.meta import ObjectMeta
from outrider.api.reasons import GPU_RECOVERED, GPU_UNHEALTHY, NODE_TAINTED, NODE_UNTAINTED
from outrider.health.judge import Judgement
from outrider.kube.backoff import delay_seconds
from outrider.kube.client import Client, PatchType
from outrider.kube.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound
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
        self.published = False
        """True once a whole round has succeeded."""

    def touch(self, *, force: bool = False) -> None:
        """Ask for a round soon; ``force`` writes the status even where only times and steps differ."""
        self._forced |= force
        self._changed.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        failures = 0
        while True:
            await self._wait()
            failures = 0 if await self._round() else failures + 1
            if failures:
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
        complete = all(done) and await self._attempt(self._tell, known)
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
        node, mode = await asyncio.gather(self._client.get(NODES, self._node), self._mode())
        wanted = wanted_taint(known.judgement, mode)
        sees = known.judgement.node.health is not Health.UNKNOWN
        patch = taint_patch(node, wanted, may_remove=sees)
        if not patch:
            return
        await self._client.patch(NODES, self._node, patch, PatchType.JSON)
        await self._tell_taint(node, wanted, taint_words(wanted, mode, known.judgement.message))

    async def _mode(self) -> Mode:
        try:
            return (await self._client.get(GPUNODES, self._node)).spec.mode
        except NotFound:
            return Mode.AUTO

    async def _tell_taint(self, node: Node, wanted: str | None, message: str) -> None:
        reason = NODE_TAINTED if wanted else NODE_UNTAINTED
        _LOG.info("taint changed", extra={"node": self._node, "taint": wanted or ""})
        await self._events.emit(node, NODES, reason=reason, message=message, warning=wanted is not None)

    async def _status(self, known: Known) -> None:
        existing = await self._existing()
        status = status_of(known.memory, known.judgement, known.ranks, existing, time.time())
        due = time.monotonic() - self._status_at >= self._heartbeat_seconds
        if due or self._forced or not tells_the_same(existing.status, status):
            self._forced = False
            await self._client.replace(GPUNODES, self._node, status_body(existing, status), subresource="status")
            self._status_at = time.monotonic()

    async def _existing(self) -> GPUNode:
        try:
            return await self._client.get(GPUNODES, self._node)
        except NotFound:
            return await self._client.create(GPUNODES, GPUNode(metadata=ObjectMeta(name=self._node)))

    async def _condition(self, known: Known) -> None:
        node = await self._client.get(NODES, self._node)
        patch = condition_patch(node, known.judgement, time.time())
        if patch is not None:
            await self._client.patch(NODES, self._node, patch, PatchType.STRATEGIC, subresource="status")

    def _affected(self) -> list[Pod]:
        return [pod for pod in self._pods() if trace_of(pod) and not pod.finished]

    def _open_spans(self, spans: ExitStack, known: Known) -> None:
        """At a new hard verdict: one span in the trace of each job on the node, from the verdict to its publication."""
        opinion = known.judgement.node
        news = Announced(opinion.verdict, opinion.reason)
        if not opinion.verdict.hard or news in (known.memory.announced, self._traced):
            return
        self._traced = news
        for context in traceparents({pod.key: trace_of(pod) for pod in self._affected()}):
            attributes = {"node": self._node, "verdict": str(opinion.verdict), "reason": opinion.reason}
            spans.enter_context(span("agent.verdict", context, **attributes, score=opinion.score))

    async def _tell(self, known: Known) -> None:
        """Tell users of a change of the verdict, once, on the node and on the pods of jobs that run there."""
        opinion, before = known.judgement.node, known.memory.announced
        if before == Announced(opinion.verdict, opinion.reason):
            return
        if opinion.verdict.hard or before.verdict.hard:
            reason = GPU_UNHEALTHY if opinion.verdict.hard else GPU_RECOVERED
            message = f"node {self._node}: {known.judgement.message}"
            warning = opinion.verdict.hard
            node = await self._client.get(NODES, self._node)
            await self._events.emit(node, NODES, reason=reason, message=message, warning=warning)
            for pod in self._affected():
                await self._events.emit(pod, PODS, reason=reason, message=message, warning=warning)
        self._announced(Announced(opinion.verdict, opinion.reason))
