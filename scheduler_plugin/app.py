"""Wiring: informers feed the World, the extender answers from its snapshots, the leader's planner writes plans."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from outrider.api.names import PLANNER_LEASE, PLANNER_MANAGER
from outrider.kube.client import Client
from outrider.kube.errors import KubeError, NotFound
from outrider.kube.events import EventRecorder
from outrider.kube.informer import Informer
from outrider.kube.kinds import GANGPLACEMENTS, GPUNODES, JOBS, NODES, PODS, PYTORCHJOBS, TRAININGPOLICIES
from outrider.kube.leader import LeaderElector
from outrider.kube.transport import connect
from outrider.service import identity, release_namespace, serve_probes
from scheduler_plugin.cluster.world import Change, World
from scheduler_plugin.config import Config
from scheduler_plugin.extender.server import Extender
from scheduler_plugin.metrics import SNAPSHOT_NODES
from scheduler_plugin.planner.planner import Planner
from scheduler_plugin.rules import Rules

_LOG: Final = logging.getLogger(__name__)
_PUBLISH_SECONDS: Final = 0.02  # changes that come together become one snapshot; plans are published at once
_ABSENT_SECONDS: Final = 60.0  # how often to look whether an optional kind has been installed


class Plugin:
    """All parts of one process. Await ``run``; ``readiness`` tells whether filter knows the cluster."""

    def __init__(self, client: Client, config: Config, rules: Rules, name: str, namespace: str) -> None:
        self._client, self._config = client, config
        self._world = World(rules, wake=self._publish_soon, on_gang=self._on_gang, on_nodes=self._on_nodes)
        self._planner = Planner(client, self._world, EventRecorder(client, PLANNER_MANAGER), rules)
        self._elector = LeaderElector(client, PLANNER_LEASE, namespace, name)
        self._informers: Sequence[Informer[Any]] = self._watched()
        self.port = 0

    def _watched(self) -> Sequence[Informer[Any]]:
        nodes, health = Informer(self._client, NODES), Informer(self._client, GPUNODES)
        pods, placements = Informer(self._client, PODS), Informer(self._client, GANGPLACEMENTS)
        jobs, policies = Informer(self._client, JOBS), Informer(self._client, TRAININGPOLICIES)
        nodes.subscribe(self._world.on_node)
        health.subscribe(self._world.on_gpunode)
        pods.subscribe(self._world.on_pod)
        placements.subscribe(self._world.on_placement)
        jobs.subscribe(self._world.on_job)
        policies.subscribe(self._world.on_policy)
        return nodes, health, placements, jobs, policies, pods

    async def run(self) -> None:
        """Serve and plan until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            group.create_task(self._follow_pytorchjobs())
            group.create_task(self._serve())
            group.create_task(self._plan())

    def readiness(self) -> str | None:
        """Return what is still missing before filter can answer, None when nothing is."""
        missing = sum(not informer.synced.is_set() for informer in self._informers)
        return f"{missing} of {len(self._informers)} kinds are not listed yet" if missing else None

    async def _plan(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()
        await self._elector.run(self._planner.run)

    async def _follow_pytorchjobs(self) -> None:
        """Follow PyTorchJobs where the cluster has that kind; where it has not, look again now and then."""
        jobs = Informer(self._client, PYTORCHJOBS)
        jobs.subscribe(self._world.on_job)
        while True:
            if await self._installed():
                await jobs.run()
            await asyncio.sleep(_ABSENT_SECONDS)

    async def _installed(self) -> bool:
        try:
            await self._client.list(PYTORCHJOBS)
        except NotFound:
            return False
        except KubeError as error:
            _LOG.warning("can't list PyTorchJobs", extra={"problem": str(error)})
            return False
        return True

    async def _serve(self) -> None:
        extender = Extender(lambda: self._world.snapshot, deadline_seconds=self._config.deadline_seconds)
        runner = web.AppRunner(extender.application(), access_log=None)
        await runner.setup()
        try:
            tls = self._config.extender_tls
            context = tls.context() if tls else None
            site = web.TCPSite(runner, self._config.extender_host, self._config.extender_port, ssl_context=context)
            await site.start()
            self.port = runner.addresses[0][1]
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    def _publish_soon(self) -> None:
        asyncio.get_running_loop().call_later(_PUBLISH_SECONDS, self._world.refresh)

    def _on_gang(self, job_uid: str) -> None:
        self._planner.on_gang(job_uid)

    def _on_nodes(self, changes: list[Change]) -> None:
        SNAPSHOT_NODES.set(len(self._world.snapshot.nodes))
        self._planner.on_nodes(changes)


async def run(config: Config) -> None:
    """Run until cancelled. Raises NoCredentials before anything is served."""
    async with connect(PLANNER_MANAGER) as client:
        plugin = Plugin(client, config, config.rules(), identity(), release_namespace())
        async with asyncio.TaskGroup() as group:
            group.create_task(serve_probes(config.probe_port, plugin.readiness))
            group.create_task(plugin.run())
