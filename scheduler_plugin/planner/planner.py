"""The planner: carries out each gang's next step. Only the leader runs it.

One gang is planned at a time, against a snapshot that holds every plan made before; the writes of one gang go on while
the next is planned.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import msgspec
from opentelemetry.trace import INVALID_SPAN, Span

from outrider.api import reasons
from outrider.api.gangplacement import GangPlacement
from outrider.api.names import TRACEPARENT_ANNOTATION
from outrider.api.times import parse_rfc3339
from outrider.kube.client import Client
from outrider.kube.errors import KubeError
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import GANGPLACEMENTS, GPUNODES, PODDISRUPTIONBUDGETS
from outrider.kube.workqueue import WorkQueue
from outrider.telemetry import traces
from outrider.workloads import BadQuantity
from scheduler_plugin import metrics
from scheduler_plugin.cluster.members import GangState, managed
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.turns import Turn
from scheduler_plugin.cluster.world import Change, World
from scheduler_plugin.placing.spares import worn
from scheduler_plugin.planner import deliver, evicting
from scheduler_plugin.planner.acceptance import accepted, problem
from scheduler_plugin.planner.advance import Advance, advance
from scheduler_plugin.planner.backfill import held_gpus, quota_of
from scheduler_plugin.planner.budgets import guarded
from scheduler_plugin.planner.fence import FencedClient
from scheduler_plugin.planner.ledger import ledger, stands
from scheduler_plugin.planner.preempting import Losses, losses_of
from scheduler_plugin.planner.rounds import Rounds
from scheduler_plugin.planner.statuses import vacated
from scheduler_plugin.planner.telling import Teller
from scheduler_plugin.rules import Rules

_LOG: Final = logging.getLogger(__name__)
_WORKERS: Final = 16  # gangs whose writes are under way at once
_LOOK_SECONDS: Final = 10.0  # how soon what only time changes is noticed: stale health, plans that did not bind
_TOGETHER_SECONDS: Final = 0.02  # changes of one gang within this time are one change
_REST: Final = 4  # a gang is left alone for so many times longer than looking at it took, so that others get their turn
_REST_MOST_SECONDS: Final = 1.0
_GATHER_SECONDS: Final = 0.2  # changes of nodes that come together wake waiting gangs once
_RETRY_SECONDS: Final = 1.0  # how soon a new leader asks again for the placements of the last one
_RENEWED: Final = 16  # gangs that get other spares in each look, so that one node taken means no storm of writes
_LOSSES_SECONDS: Final = 10.0  # agents tell steps no more often


class Planner:
    """Plans the gangs of a World. ``clock`` gives seconds since 1970.

    ``leading`` says whether the lease is surely ours at that moment.
    """

    def __init__(
        self,
        client: Client,
        world: World,
        recorder: EventRecorder,
        rules: Rules,
        *,
        clock: Callable[[], float] = time.time,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client, self._world, self._rules = FencedClient(client, leading), world, rules
        self._clock = clock
        self._teller = Teller(self._client, recorder, clock)
        self._queue: WorkQueue[str] | None = None
        self._planning = asyncio.Lock()
        self._room = asyncio.Event()
        self._rounds = Rounds()
        self._took: dict[str, float] = {}  # seconds of the last look at each gang
        self._needs: dict[str, int] = {}
        self._told: set[str] = set()  # gangs that wait and know why
        self._losses: tuple[float, Losses] = (float("-inf"), Losses())

    def on_gang(self, job_uid: str) -> None:
        """Look at a gang again, soon: its pods change together. Nothing happens while another process leads."""
        if self._queue is not None:
            rest = min(_REST * self._took.get(job_uid, 0.0), _REST_MOST_SECONDS)
            self._queue.add_after(job_uid, max(rest, _TOGETHER_SECONDS))

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
        self._queue = WorkQueue(order=self._turn)
        self._teller.forget()
        self._needs.clear()
        self._told.clear()
        try:
            await self._catch_up()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look())
                group.create_task(self._wake_waiting())
                for _ in range(_WORKERS):
                    group.create_task(self._work(self._queue))
        finally:
            self._queue = None

    async def watch(self) -> None:
        """Tell, until cancelled and whoever leads, which pods wait for a planner, for an alert when none leads."""
        while True:
            since = [pod.metadata.creation_timestamp or "" for pod in self._world.gated()]
            metrics.GATED_PODS.set(len(since))
            metrics.OLDEST_GATE_SECONDS.set(max((self._age(text) for text in since), default=0.0))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _catch_up(self) -> None:
        """Read every placement that the leader before us wrote, which our own watch may still be about to tell."""
        while True:
            try:
                page = await self._client.list(GANGPLACEMENTS)
            except KubeError as error:
                _LOG.warning("placements not read, tried again", extra={"problem": str(error)})
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                for placement in page.items:
                    self._world.on_placement(None, placement)
                return

    async def _look(self) -> None:
        while True:
            self._add_unsettled()
            self._renew_spares()
            await self._clear_up()  # before anything else is written there: room given back must not wait a look
            await self._judge_placements()
            await self._teller.say_avoided(self._world.snapshot.nodes.values())
            counts = stands(ledger(self._world.gangs()).values())
            for stand, count in counts.items():
                metrics.GANG_PODS.labels(stand).set(count)
            snapshot = self._world.snapshot
            metrics.RESERVED_RATIO.set(held_gpus(snapshot, self._rules) / max(quota_of(snapshot, self._rules), 1.0))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _judge_placements(self) -> None:
        for placement, orphaned in self._world.placements():
            condition = accepted(placement, problem(placement, orphaned=orphaned), self._clock())
            if condition is not None:
                await self._try(placement, deliver.say_accepted(self._client, placement, condition))

    async def _clear_up(self) -> None:
        """Give back what is held for gangs without pods; remove placements that no owner takes along when it goes."""
        for placement in self._world.forsaken():
            wanted = msgspec.structs.replace(placement, status=vacated(placement.status))
            await self._try(placement, deliver.write_placement(self._client, wanted))
        for placement, orphaned in self._world.placements():
            meta = placement.metadata
            if orphaned and not placement.spec.owned:
                gone = self._client.delete(GANGPLACEMENTS, meta.name, meta.namespace, meta.uid)
                await self._try(placement, gone)

    async def _try(self, placement: GangPlacement, write: Awaitable[object]) -> None:
        try:
            await write
        except KubeError as error:
            uid = placement.spec.job_uid
            _LOG.warning("placement not written, tried again", extra={"job_uid": uid, "problem": str(error)})

    async def _wake_waiting(self) -> None:
        while True:
            await self._room.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._room.clear()
            free = self._world.free_gpus()
            waiting = self._world.unsettled(self._clock())
            # A large gang needs no look at each GPU that becomes free.
            later = self._add_round([job_uid for job_uid in waiting if self._needs.get(job_uid, 0) <= free])
            if later:
                asyncio.get_running_loop().call_later(later, self._room.set)

    def _renew_spares(self) -> None:
        """Look again at some of the gangs whose spares others took: a node may have been the spare of many."""
        snapshot, now = self._world.snapshot, self._clock()
        placements = (placement for placement, _ in self._world.placements())
        spent = [one.spec.job_uid for one in placements if one.status.spares and worn(one.status, snapshot, now)]
        for job_uid in random.sample(spent, min(len(spent), _RENEWED)):
            self.on_gang(job_uid)

    def _add_unsettled(self) -> None:
        now = self._clock()
        unsettled = self._world.unsettled(now)
        metrics.WAITING_GANGS.set(len(unsettled))
        oldest = max((now - self._world.turn(uid, now)[2] for uid in unsettled), default=0.0)
        metrics.OLDEST_WAITING_SECONDS.set(oldest)
        self._add_round(unsettled)

    def _add_round(self, waiting: Sequence[str]) -> float:
        """Look again at gangs, given in the order of their turns, as far as there is time; return when to go on."""
        took = [self._took.get(job_uid, 0.0) for job_uid in waiting]
        count, later = self._rounds.due(took, time.monotonic())
        for job_uid in waiting[:count]:
            self.on_gang(job_uid)
        return later

    def _turn(self, job_uid: str) -> tuple[bool, Turn]:
        """Return when a gang is looked at: those that were told why they wait come after all others."""
        return job_uid in self._told, self._world.turn(job_uid, self._clock())

    def _ahead(self, queue: WorkQueue[str], job_uid: str) -> int:
        """Return how many gangs come before one that is new, and are still to be looked at for what is free."""
        told, mine = self._turn(job_uid)
        return 0 if told else sum(1 for waits, turn in queue.turns() if waits and turn < mine)

    def _age(self, text: str) -> float:
        try:
            return max(self._clock() - parse_rfc3339(text), 0.0)
        except ValueError:
            return 0.0

    async def _work(self, queue: WorkQueue[str]) -> None:
        while True:
            job_uid = ""
            try:
                async with self._planning:  # whoever holds a gang plans it: the next one is chosen only then
                    job_uid = await queue.get()
                    planned = await self._plan(job_uid, self._ahead(queue, job_uid))
                again_seconds = await self._deliver(*planned) if planned else None
            except (KubeError, BadQuantity) as error:
                metrics.ERRORS.inc()
                _LOG.warning("gang is tried again", extra={"job_uid": job_uid, "problem": str(error)})
                queue.retry(job_uid)
            except Exception:  # noqa: BLE001 - one gang that nobody thought of must not stop all the others
                metrics.ERRORS.inc()
                _LOG.exception("gang can't be planned, tried again: please report this", extra={"job_uid": job_uid})
                queue.retry(job_uid)
            else:
                queue.done(job_uid)
                if again_seconds is not None:
                    queue.add_after(job_uid, again_seconds)

    async def _plan(self, job_uid: str, ahead: int) -> tuple[GangState, Advance, GangPlacement | None] | None:
        """Return a gang's next step, and its placement where that changes; None for a gang that is no more."""
        self._told.discard(job_uid)
        gang = self._world.gang(job_uid)
        if gang is None:
            self._teller.forget(job_uid)
            self._took.pop(job_uid, None)
            return None
        step = await self._decide(gang, ahead)
        self._needs[job_uid] = step.needs
        if step.waiting:
            self._told.add(job_uid)
        wanted = None if step.status is None else deliver.placement_with(gang, step.size, step.status)
        if wanted is not None:
            self._world.claim(wanted)  # the next gang's plan must not use these nodes
        return gang, step, wanted

    async def _deliver(self, gang: GangState, step: Advance, wanted: GangPlacement | None) -> float | None:
        """Carry a step out; return how soon, in seconds, the gang asks for another look."""
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

    async def _decide(self, gang: GangState, ahead: int) -> Advance:
        started = time.perf_counter()
        with _traced(gang) as span:
            snapshot = self._world.publish()
            step = await asyncio.to_thread(advance, gang, snapshot, self._rules, self._clock(), None, ahead)
            if step.asks_losses:
                losses = await self._lost()
                step = await asyncio.to_thread(advance, gang, snapshot, self._rules, self._clock(), losses)
            span.set_attributes({"outcome": step.outcome, "message": step.message, "pods": step.size})
        self._took[gang.job.uid] = time.perf_counter() - started
        metrics.PLAN_SECONDS.labels(step.outcome).observe(self._took[gang.job.uid])
        return step

    async def _lost(self) -> Losses:
        """Return what preemption would cost: read when it is asked for, since nobody else needs the steps of ranks."""
        when, losses = self._losses
        if self._clock() - when > _LOSSES_SECONDS:
            seconds = losses_of((await self._client.list(GPUNODES)).items)
            budgets = (await self._client.list(PODDISRUPTIONBUDGETS)).items
            pods = (pod for gang in self._world.gangs() for pod in gang.pods) if budgets else ()
            losses = Losses(seconds, guarded(budgets, pods))
            self._losses = (self._clock(), losses)
        return losses

    async def _carry_out(self, gang: GangState, step: Advance) -> None:
        if step.release:
            for pod in await deliver.release(self._client, step.release, step.message):
                self._world.on_pod(None, pod)
        # A changed annotation makes kube-scheduler try a pod again that the extender refused before it was planned.
        await deliver.tell(self._client, step.wake, step.message)
        await deliver.retry(self._client, step.retry, self._clock())
        await self._evict(gang, step)
        if step.waiting:
            await self._teller.say_why(gang, step)
        if step.status is not None and step.outcome == "planned":
            await self._teller.say_planned(gang, step)

    async def _evict(self, gang: GangState, step: Advance) -> None:
        gone = await evicting.evict_pods(self._client, step.evict, step.message)
        if gone and step.status is not None and step.status.retry_at:
            metrics.RELEASED_GANGS.inc()
            await self._teller.event(gang, reasons.GANG_RELEASED, step.message, gone[:1], warning=True)
        moved = await evicting.displace(self._client, step.displace, step.message)
        metrics.PREEMPTED_GANGS.inc(len(moved))
        await self._teller.say_displaced(gang, [(victim, self._world.gang(victim.job_uid)) for victim in moved])


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
    before = (old.judgement, old.taints, old.cordoned, old.suspect, old.closure)
    return before != (new.judgement, new.taints, new.cordoned, new.suspect, new.closure)


def _better(old: NodeView, new: NodeView) -> bool:
    """Return whether a gang that did not fit might fit now."""
    if _worse(old, new) or old.labels != new.labels:
        return True
    more = any(amount > old.free.get(name, 0) for name, amount in new.free.items())
    return more or new.spare_gpus > old.spare_gpus
