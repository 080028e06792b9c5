"""Wiring of the remediation controller."""

import asyncio

from outrider.api.names import REMEDIATION_LEASE, REMEDIATION_MANAGER
from outrider.kube.events import EventRecorder
from outrider.kube.leader import LeaderElector
from outrider.kube.transport import connect
from outrider.service import identity, release_namespace, serve_probes
from remediation.cache import Cache
from remediation.config import Config
from remediation.controller import Controller
from remediation.reporting import Reporter


async def run(config: Config) -> None:
    """Run until cancelled. Raises NoCredentials before anything is done."""
    async with connect(REMEDIATION_MANAGER) as client:
        cache = Cache(client)
        elector = LeaderElector(client, REMEDIATION_LEASE, release_namespace(), identity())
        reporter = Reporter(EventRecorder(client, REMEDIATION_MANAGER))
        controller = Controller(client, cache, reporter, config=config, may_act=lambda: elector.is_leader)
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            group.create_task(serve_probes(config.probe_port, lambda: readiness(cache, config)))
            group.create_task(elector.run(controller.run))


def readiness(cache: Cache, config: Config) -> str | None:
    """Return why the controller could not act if it had to, None where it could (or stands by to lead)."""
    if not cache.complete:
        return "still listing the cluster"
    if cache.staleness_seconds > config.cache_stale_seconds:
        return f"the API server has been silent for {cache.staleness_seconds:.0f} s"
    return None
