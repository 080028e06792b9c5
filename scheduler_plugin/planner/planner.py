"""The planner: carries out each gang's next step. Only the leader runs it.

One gang is planned at a time, against a snapshot that holds every plan made before; the writes of one gang go on while
the next is planned.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from opentelemetry.trace import INVALID_SPAN, Span

from outrider.api import reasons
from outrider.api.core import Job, PyTorchJob
from outrider.api.gangplacement import GangPlacement
from outrider.api.names import TRACEPARENT_ANNOTATION, WHY_ANNOTATION
from outrider.kube.client import Client
from outrider.kube.errors import KubeError
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import JOBS, PODS, PYTORCHJOBS
from outrider.kube.workqueue import WorkQueue
from outrider.telemetry import traces
from outrider.workloads import BadQuantity
from scheduler_plugin.cluster.members import GangState, managed
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.world import Change, World
from scheduler_plugin.metrics import ERRORS, PLAN_SECONDS, REPLACED_RANKS, WAITING_GANGS
from scheduler_plugin.planner import deliver
from scheduler_plugin.planner.acceptance import accepted, problem
from scheduler_plugin.planner.advance import Advance, advance
from scheduler_plugin.rules import Rules

_LOG: Final = logging.getLogger(__name__)
_WORKERS: Final = 16  # gangs whose writes are under way at once
_LOOK_SECONDS: Final = 10.0  # how soon what only time changes is noticed: stale health, plans that did not bind
_TOGETHER_SECONDS: Final = 0.02  # changes of one gang within this time are one change
_GATHER_SECONDS: Final = 0.2  # changes of nodes that come together wake waiting gangs once
_REPEAT_SECONDS: Final = 10.0  # a waiting gang is told a new reason no more often


class Planner:
    """Plans the gangs of a World. ``clock`` gives seconds since 1970."""

    def __init__(
        self,
        client: Client,
        world: World,
        recorder: EventRecorder,
        rules: Rules,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._world, self._recorder, self._rules = client, world, recorder, rules
        self._clock = clock
        self._queue: WorkQueue[str] | None = None
        self._planning = asyncio.Lock()
        self._told: dict[str, tuple[str, float]] = {}
        self._room = asyncio.Event()

    def on_gang(self, job_uid: str) -> None:
        """Look at a gang again, soon: its pods change together. Nothing happens while another process leads."""
        if self._queue is not None:
            self._queue.add_after(job_uid, _TOGETHER_SECONDS)

    def on_nodes(self, changes: list[Change]) -> None:
        """Look at the gangs that lost a planned node at once, and soon at all that wait if there is more room."""
        for old, new in changes:
            if old is not None and (new is None or _worse(old, new)):
                for job_uid in old.holds:
                    self.on_gang(job_uid)
            if new is not None and (old is None or _better(old, new)):
                self._room.set()

    async def run(self) -> None:
        """Plan until cancelled."""
        self._queue = WorkQueue()
        self._told.clear()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look())
                group.create_task(self._wake_waiting())
                for _ in range(_WORKERS):
                    group.create_task(self._work(self._queue))
        finally:
            self._queue = None

    async def _look(self) -> None:
        while True:
            self._add_unsettled()
            await self._judge_placements()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _judge_placements(self) -> None:
        for placement, orphaned in self._world.placements():
            condition = accepted(placement, problem(placement, orphaned=orphaned), self._clock())
            if condition is None:
                continue
            try:
                await deliver.say_accepted(self._client, placement, condition)
            except KubeError as error:
                _LOG.warning(
                    "condition not written, tried again",
                    extra={"job_uid": placement.spec.job_uid, "problem": str(error)},
                )

    async def _wake_waiting(self) -> None:
        while True:
            await self._room.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._room.clear()
            self._add_unsettled()

    def _add_unsettled(self) -> None:
        unsettled = self._world.unsettled()
        WAITING_GANGS.set(len(unsettled))
        for job_uid in unsettled:
            self.on_gang(job_uid)

    async def _work(self, queue: WorkQueue[str]) -> None:
        while True:
            job_uid = await queue.get()
            try:
                again_seconds = await self._step(job_uid)
            except (KubeError, BadQuantity) as error:
                ERRORS.inc()
                _LOG.warning("gang is tried again", extra={"job_uid": job_uid, "problem": str(error)})
                queue.retry(job_uid)
            else:
                queue.done(job_uid)
                if again_seconds is not None:
                    queue.add_after(job_uid, again_seconds)

    async def _step(self, job_uid: str) -> float | None:
        gang = self._world.gang(job_uid)
        if gang is None:
            self._told.pop(job_uid, None)
            return None
        async with self._planning:
            gang = self._world.gang(job_uid) or gang
            step = await self._decide(gang)
            wanted = None if step.status is None else deliver.placement_with(gang, step.size, step.status)
            if wanted is not None:
                self._world.claim(wanted)  # the next gang's plan must not use these nodes
        if wanted is not None:
            await self._write(wanted)
        await self._carry_out(gang, step)
        return step.again_seconds

    async def _write(self, wanted: GangPlacement) -> None:
        stored = None
        try:
            stored = await deliver.write_placement(self._client, wanted)
        finally:
            self._world.settle(wanted.spec.job_uid, stored)
            self._world.publish()  # filter must know the plan before it is asked about its pods

    async def _decide(self, gang: GangState) -> Advance:
        started = time.perf_counter()
        with _traced(gang) as span:
            snapshot = self._world.publish()
            step = await asyncio.to_thread(advance, gang, snapshot, self._rules, self._clock())
            span.set_attributes({"outcome": step.outcome, "message": step.message, "pods": step.size})
        PLAN_SECONDS.labels(step.outcome).observe(time.perf_counter() - started)
        return step

    async def _carry_out(self, gang: GangState, step: Advance) -> None:
        if step.release:
            for pod in await deliver.release(self._client, step.release, step.message):
                self._world.on_pod(None, pod)
        # A changed annotation makes kube-scheduler try a pod again that the extender refused before it was planned.
        await deliver.tell(self._client, step.wake, step.message)
        for pod in step.evict:
            await deliver.evict_unstarted(self._client, pod)
        if step.waiting:
            await self._say_why(gang, step)
        elif step.status is not None and step.outcome == "planned":
            self._told.pop(gang.job.uid, None)
            await self._say_planned(gang, step)

    async def _say_why(self, gang: GangState, step: Advance) -> None:
        """Tell people once per reason, and no more often than they can read."""
        last, when = self._told.get(gang.job.uid, ("", 0.0))
        now = self._clock()
        if last and now - when < _REPEAT_SECONDS:
            silent = [pod for pod in step.waiting if WHY_ANNOTATION not in pod.metadata.annotations]
            await deliver.tell(self._client, silent, step.message)
            return
        self._told[gang.job.uid] = (step.message, now)
        await deliver.tell(self._client, step.waiting, step.message)
        if last != step.message:
            await self._event(gang, reasons.GANG_WAITING, step.message, warning=True)
            for pod in step.waiting[:1]:
                await self._recorder.emit(pod, PODS, reason=reasons.GANG_WAITING, message=step.message, warning=True)

    async def _say_planned(self, gang: GangState, step: Advance) -> None:
        for rank in step.moved:
            REPLACED_RANKS.inc()
            await self._event(gang, reasons.RANK_REPLACED, f"rank {rank.rank} ({rank.pod}) goes to {rank.node}")
        if not step.moved:
            await self._event(gang, reasons.GANG_PLANNED, step.message)

    async def _event(self, gang: GangState, reason: str, message: str, *, warning: bool = False) -> None:
        if isinstance(gang.owner, Job):
            await self._recorder.emit(gang.owner, JOBS, reason=reason, message=message, warning=warning)
        elif isinstance(gang.owner, PyTorchJob):
            await self._recorder.emit(gang.owner, PYTORCHJOBS, reason=reason, message=message, warning=warning)


def _traced(gang: GangState) -> AbstractContextManager[Span]:
    """Return a span in the job's trace where pods wait for a plan; a look at a gang that is settled leaves none."""
    ranks = gang.placement.status.ranks if gang.placement else ()
    planned = {rank.pod_uid for rank in ranks}
    if all(pod.metadata.uid in planned or pod.spec.node_name or not managed(pod) for pod in gang.pods):
        return nullcontext(INVALID_SPAN)
    contexts = (pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, "") for pod in gang.pods)
    return traces.span("planner.plan", next(filter(None, contexts), ""), job=f"{gang.namespace}/{gang.job.name}")


def _worse(old: NodeView, new: NodeView) -> bool:
    """Return whether planned pods may no longer start there."""
    return (old.judgement, old.taints, old.cordoned) != (new.judgement, new.taints, new.cordoned)


def _better(old: NodeView, new: NodeView) -> bool:
    """Return whether a gang that did not fit might fit now."""
    if _worse(old, new) or old.labels != new.labels:
        return True
    more = any(amount > old.free.get(name, 0) for name, amount in new.free.items())
    return more or new.spare_gpus > old.spare_gpus
