"""Wiring: informers feed the World, the extender's process mirrors it, the leader's planner writes plans."""

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import Collection, Iterator
from typing import Final

from prometheus_client import REGISTRY, Metric

from outrider.api.names import PLANNER_LEASE, PLANNER_MANAGER
from outrider.kube.client import Client
from outrider.kube.events import EventRecorder
from outrider.kube.leader import LeaderElector
from outrider.kube.transport import connect
from outrider.service import identity, release_namespace, serve_probes
from scheduler_plugin.cluster.world import Change, World
from scheduler_plugin.config import Config
from scheduler_plugin.extender.feed import Feed
from scheduler_plugin.extender.frames import Start
from scheduler_plugin.following import Following
from scheduler_plugin.metrics import SNAPSHOT_NODES
from scheduler_plugin.planner.planner import Planner
from scheduler_plugin.rules import Rules

_LOG: Final = logging.getLogger(__name__)
_PUBLISH_SECONDS: Final = 0.02  # changes that come together become one snapshot; plans are published at once
# A plan is made in a thread of its own: how long it may keep the interpreter from this one (CPython takes 5 ms).
_TURN_SECONDS: Final = 0.0005
_NICE: Final = 5  # of this process beside the extender's; it counts only between processes of one container
_LOOK_SECONDS: Final = 0.1
_CLOCK_SECONDS: Final = 1.0
_JUMP_SECONDS: Final = 2.0


class WallClock:
    """Notices that the machine's clock was set, by a clock that never is. Both are in seconds."""

    def __init__(self, wall: float, steady: float) -> None:
        self._ahead = wall - steady

    def jump(self, wall: float, steady: float) -> float:
        """Return by how much the clock was set since the last call; 0 where it at most drifts."""
        before, self._ahead = self._ahead, wall - steady
        jump = self._ahead - before
        return jump if abs(jump) >= _JUMP_SECONDS else 0.0


class Plugin:
    """All parts. Await ``run``; ``readiness`` tells whether filter knows the cluster."""

    def __init__(self, client: Client, config: Config, rules: Rules, name: str, namespace: str) -> None:
        self._client, self._config = client, config
        self._world = World(
            rules, wake=self._publish_soon, on_gang=self._on_gang, on_nodes=self._on_nodes, on_views=self._on_views
        )
        self._feed = Feed(lambda: self._world.snapshot)
        self._elector = LeaderElector(client, PLANNER_LEASE, namespace, name)
        self._planner = Planner(
            client,
            self._world,
            EventRecorder(client, PLANNER_MANAGER),
            rules,
            leading=lambda: self._elector.is_leader,
        )
        self._following = Following(client, self._world)

    async def run(self) -> None:
        """Serve and plan until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._following.run())
            group.create_task(self._serve())
            group.create_task(self._plan())
            group.create_task(self._planner.watch())
            group.create_task(self._watch_clock())

    def readiness(self) -> str | None:
        """Return what is still missing before filter can answer, None when nothing is."""
        return self._following.missing() or (None if self.port else "the extender does not serve yet")

    async def _plan(self) -> None:
        await self._following.synced()
        self._world.refresh()
        self._feed.begin()  # not before: half of a cluster looks free
        gc.collect()
        gc.freeze()  # what is known of the cluster stays: no need to look it through again and again
        await self._elector.run(self._plan_on_fresh_data)

    async def _plan_on_fresh_data(self) -> None:
        """Plan, but not while the API server has been silent for too long: what we know of the nodes may be over."""
        lag_seconds = self._config.lag_seconds
        while True:
            await self._following.fresh(lag_seconds)
            async with asyncio.TaskGroup() as group:
                planning = group.create_task(self._planner.run())
                await self._following.stale(lag_seconds)
                _LOG.warning(
                    "nothing is planned until the API server is heard again", extra={"lag_seconds": lag_seconds}
                )
                planning.cancel()

    async def _watch_clock(self) -> None:
        clock = WallClock(time.time(), _steady())
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            jump = clock.jump(time.time(), _steady())
            if jump:
                _LOG.warning("this machine's clock was set", extra={"forward_seconds": round(jump, 1)})
                self._world.clock_was_set(jump)

    @property
    def port(self) -> int:
        """Where the extender answers; 0 until it does."""
        return self._feed.port

    def extender_metrics(self) -> Iterator[Metric]:
        """Return the metrics of the extender's process as they were a second ago."""
        return self._feed.collect()

    async def _serve(self) -> None:
        config = self._config
        start = Start(
            config.extender_host, config.extender_port, config.deadline_seconds, config.log_level, config.extender_tls
        )
        REGISTRY.register(self._feed)
        try:
            await self._feed.run(start)
        finally:
            REGISTRY.unregister(self._feed)

    def _publish_soon(self) -> None:
        asyncio.get_running_loop().call_later(_PUBLISH_SECONDS, self._world.refresh)

    def _on_gang(self, job_uid: str) -> None:
        self._planner.on_gang(job_uid)

    def _on_views(self, names: Collection[str]) -> None:
        self._feed.on_views(names)

    def _on_nodes(self, changes: list[Change]) -> None:
        SNAPSHOT_NODES.set(len(self._world.snapshot.nodes))
        self._planner.on_nodes(changes)


def _steady() -> float:
    """Return a time in seconds that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def run(config: Config) -> None:
    """Run until cancelled. Raises NoCredentials before anything is served."""
    sys.setswitchinterval(_TURN_SECONDS)
    async with connect(PLANNER_MANAGER) as client:
        plugin = Plugin(client, config, config.rules(), identity(), release_namespace())
        async with asyncio.TaskGroup() as group:
            group.create_task(serve_probes(config.probe_port, plugin.readiness))
            group.create_task(plugin.run())
            group.create_task(_give_way(plugin))


async def _give_way(plugin: Plugin) -> None:
    """Let the extender's process go first where both want the same core: kube-scheduler waits for it, pod by pod."""
    while not plugin.port:  # noqa: ASYNC110 - it happens in another process
        await asyncio.sleep(_LOOK_SECONDS)
    os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
