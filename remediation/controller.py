"""The controller: reads the world, asks the ladder, records its decision, then acts. Runs only while it leads."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from outrider.api.core import Node, Pod
from outrider.api.gpunode import GPUNode
from outrider.api.remediation import Phase, Remediation
from outrider.kube.client import Client
from outrider.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from outrider.kube.kinds import GPUNODES, REMEDIATIONS
from outrider.kube.workqueue import WorkQueue
from outrider.workloads import job_uid_of
from remediation.actions import perform
from remediation.cache import Cache
from remediation.common_cause import common_cause
from remediation.config import Config
from remediation.decisions import Decision
from remediation.domain_episodes import Patience, openings
from remediation.episodes import accepted, opening
from remediation.ladder import next_step
from remediation.metrics import HELD, OPEN_EPISODES
from remediation.outlooks import REST_SECONDS, Outlooks
from remediation.reporting import Reporter
from remediation.rungs import with_message
from remediation.world import World

_LOG: Final = logging.getLogger(__name__)
_HELD_SECONDS: Final = 5.0
_GATHER_SECONDS: Final = 1.0  # between looks at a node that waits for its neighbours to tell
_DOMAINS: Final = ""  # key of the look at what nodes share: the name of no node, and spec.node of a domain's episode
_DOMAINS_SECONDS: Final = 10.0  # silence brings no news, so the domains are looked at again and again
_NEWS_SECONDS: Final = 0.5  # a common cause brings news of many nodes at once: they are looked at together


class Controller:
    """Works on one node, or on what nodes share, at a time, so two sick nodes of one job can't ask it twice.

    ``may_act`` is asked before every write: it is true only while the lease is surely ours.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        reporter: Reporter,
        *,
        config: Config,
        may_act: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._cache = cache
        self._reporter = reporter
        self._config = config
        self._may_act = may_act
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue()  # of node names, and _DOMAINS
        self._outlooks = Outlooks(config.levels(), config.evidence_fresh_seconds)
        self._patience = Patience(config.domain_settle_seconds)
        cache.on_change(self._changed)

    async def run(self) -> None:
        """Work until cancelled, beginning with every node that is sick or has an open episode."""
        self._queue = WorkQueue()  # a lost lease may have cut off work in the middle
        await self._cache.synced()
        self._queue.add(_DOMAINS)
        self._wake_all()
        while True:
            node = await self._queue.get()
            await self._work(node)

    def _wake_all(self) -> None:
        world = self._cache.world()
        sick = [name for name, gpu_node in world.gpu_nodes.items() if gpu_node.status.verdict.hard]
        for node in sick + [episode.spec.node for episode in world.open_episodes()]:
            self._queue.add(node)

    def _changed(self, old: Any, new: Any) -> None:
        """Wake the nodes that a change concerns; heartbeats of healthy nodes wake nobody."""
        item = new or old
        if _is_news(old, new):
            self._outlooks.changed()
            self._queue.add_after(_DOMAINS, _NEWS_SECONDS)
        if isinstance(item, GPUNode) and item.status.verdict.hard:
            self._queue.add(item.metadata.name)
        if isinstance(item, Remediation) and _same_but_message(old, new):
            return
        for episode in self._cache.remediations.items.values():
            if episode.status.phase is Phase.OPEN and _concerns(item, episode):
                self._queue.add(episode.spec.node)

    async def _work(self, node: str) -> None:
        try:
            after = await self.reconcile(node)
        except Conflict as error:  # someone wrote first: read again
            _LOG.info("changed meanwhile", extra={"node": node, "problem": str(error)})
            self._queue.retry(node)
        except KubeError as error:
            HELD.labels("api-error").inc()
            _LOG.warning("nothing done, will retry", extra={"node": node, "problem": str(error)})
            self._queue.retry(node)
        else:
            self._queue.done(node)
            if after is not None:
                self._queue.add_after(node, after)

    async def reconcile(self, node: str) -> float | None:
        """Take one look at a node. Returns the seconds to the next look, None to wait for a change.

        Raises KubeError where the API server can't be asked; nothing has been done on stale knowledge then.
        """
        if why := self._unfit():
            HELD.labels(why).inc()
            _LOG.warning("nothing done", extra={"node": node, "problem": why})
            return _HELD_SECONDS
        if node == _DOMAINS:
            return await self._look_at_domains()
        world = self._world(await self._live(node))
        OPEN_EPISODES.set(len(world.open_episodes()))
        episode = next((found for found in world.episodes(node) if _workable(found)), None)
        if episode is None:
            return await self._open(node, world)
        return await self._advance(episode, world)

    def _world(self, gpu_nodes: list[GPUNode]) -> World:
        for live in gpu_nodes:
            if _is_news(self._cache.gpu_nodes.get(live.metadata.name), live):
                self._outlooks.changed()
        world = self._cache.world(gpu_nodes)
        return replace(world, outlook=self._outlooks.at(world.gpu_nodes, world.nodes, self._clock()))

    async def _look_at_domains(self) -> float:
        """Open and lead the episodes of domains, and tell of programs that failed on all their nodes."""
        world = self._world([])
        for episode in openings(world, self._patience.settled(world.outlook, self._clock())):
            await self._create(episode)
        world = self._world([])
        workable = [episode for episode in world.domain_episodes() if _workable(episode)]
        after = [await self._advance_domain(episode, world) for episode in workable]
        await self._reporter.domains(world, self._clock())
        if self._patience.changed(world.outlook) or not all(_workable(episode) for episode in after):
            self._wake_all()  # nodes that were held back
        return min(_DOMAINS_SECONDS, self._patience.seconds_left(self._clock()))

    async def _advance_domain(self, episode: Remediation, world: World) -> Remediation:
        return await self._record(episode, next_step(episode, world, self._config, self._clock()), world)

    def _unfit(self) -> str:
        if not self._may_act():
            return "no-lease"
        return "stale-cache" if self._cache.staleness_seconds > self._config.cache_stale_seconds else ""

    async def _live(self, node: str) -> list[GPUNode]:
        """Read the evidence itself, never from a copy, since pods may be moved on its word."""
        try:
            return [await self._client.get(GPUNODES, node)]
        except NotFound:
            return []

    async def _open(self, node: str, world: World) -> float | None:
        if self._outlooks.behind:
            return REST_SECONDS  # the news may be what explains this node
        episode = opening(node, world, self._clock(), self._config.evidence_fresh_seconds)
        if episode is not None:
            await self._create(episode)
            return 0.0
        if (shared := common_cause(node, world)) is not None:
            await self._reporter.explained(node, shared, world)
        return _GATHER_SECONDS if node in world.outlook.gathering else None

    async def _create(self, episode: Remediation) -> None:
        try:
            created = await self._client.create(REMEDIATIONS, episode)
        except AlreadyExists:
            created = await self._client.get(REMEDIATIONS, episode.metadata.name)
        self._cache.wrote(created)
        _LOG.info("episode opened", extra={"node": created.spec.node, "remediation": created.metadata.name})

    async def _advance(self, episode: Remediation, world: World) -> float | None:
        decision = next_step(episode, world, self._config, self._clock())
        recorded = await self._record(episode, decision, world)
        notes = []
        for action in decision.actions:
            if not self._may_act():
                return _HELD_SECONDS
            notes.append(await perform(self._client, action))
        if not any(notes):
            return decision.after_seconds
        await self._note(recorded, [note for note in notes if note], world)
        return self._config.retry_seconds

    async def _record(self, episode: Remediation, decision: Decision, world: World) -> Remediation:
        """Write the status, on condition that nobody wrote since it was read, and tell people what changed."""
        if decision.status == episode.status:
            return episode
        changed = msgspec.structs.replace(episode, status=decision.status)
        try:
            written = await self._client.replace(REMEDIATIONS, episode.metadata.name, changed, subresource="status")
        except (Conflict, NotFound):
            self._cache.forget(episode.metadata.name)
            raise
        self._cache.wrote(written)
        await self._reporter.report(episode.status, changed, world)
        return written

    async def _note(self, episode: Remediation, notes: list[str], world: World) -> None:
        status = with_message(episode.status, "; ".join(notes))
        await self._record(episode, Decision(status), world)


def _is_news(old: Any, new: Any) -> bool:
    """True for a change that may make a domain suspect or clear it."""
    return bool(_shared_evidence(old) != _shared_evidence(new))


def _shared_evidence(item: Any) -> Any:
    if isinstance(item, GPUNode):
        return item.status.findings, item.status.health
    if isinstance(item, Remediation) and item.spec.domain:
        return item.spec.cancel, item.status.phase
    return item.metadata.labels if isinstance(item, Node) else None


def _workable(episode: Remediation) -> bool:
    return episode.status.phase is Phase.OPEN and accepted(episode)


def _concerns(item: Any, episode: Remediation) -> bool:
    if isinstance(item, Pod):
        return any(job_uid_of(item) == job.uid for job in episode.status.jobs)
    if isinstance(item, GPUNode):
        uids = {job.uid for job in episode.status.jobs}
        return item.metadata.name == episode.spec.node or (bool(uids) and bool(item.status.ranks))
    return isinstance(item, Remediation) or bool(item.metadata.name == episode.spec.node)


def _same_but_message(old: Remediation | None, new: Remediation | None) -> bool:
    """True for our own progress messages, which must not wake us: a refused eviction would be retried at once."""
    if old is None or new is None:
        return False
    status = msgspec.structs.replace(new.status, message=old.status.message)
    return old.metadata.generation == new.metadata.generation and old.status == status
