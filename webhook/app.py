"""Wiring: informers, TLS, the two HTTP servers, and what only the leader does."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from outrider.api.names import WEBHOOK_LEASE, WEBHOOK_MANAGER, WEBHOOK_SECRET, WEBHOOK_SERVICE
from outrider.api.trainingpolicy import TrainingPolicy
from outrider.kube.client import Client, Selector
from outrider.kube.informer import Informer
from outrider.kube.kinds import TRAININGPOLICIES
from outrider.kube.leader import LeaderElector
from outrider.kube.transport import connect
from outrider.service import identity, release_namespace, serve_probes
from webhook.admission import application
from webhook.config import Config
from webhook.judging import Judge
from webhook.objects import SECRETS
from webhook.rotation import Rotation
from webhook.serving import LiveCertificate

_LOG: Final = logging.getLogger(__name__)
_SHUTDOWN_SECONDS: Final = 5.0  # for reviews that are being answered when the pod ends


def service_names(namespace: str) -> list[str]:
    """Return the DNS names of the webhook's Service; the API server calls the first."""
    service = f"{WEBHOOK_SERVICE}.{namespace}"
    return [f"{service}.svc", service, f"{service}.svc.cluster.local"]


async def run(config: Config) -> None:
    """Serve until cancelled."""
    namespace = release_namespace()
    async with connect(WEBHOOK_MANAGER) as client:
        await serve(config, client, namespace, service_names(namespace))


async def serve(config: Config, client: Client, namespace: str, names: Sequence[str]) -> None:
    """Answer reviews with a certificate for ``names`` until cancelled; the first replica to lead makes it."""
    has_certificate = asyncio.Event()
    live = LiveCertificate(has_certificate.set)
    policies = Informer(client, TRAININGPOLICIES)
    secrets = Informer(client, SECRETS, Selector(namespace=namespace, fields=f"metadata.name={WEBHOOK_SECRET}"))
    secrets.subscribe(live.on_secret)
    rotation, judge = Rotation(client, namespace, names), Judge(client, policies)
    elector = LeaderElector(client, WEBHOOK_LEASE, namespace, identity())

    async def lead() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(rotation.run())
            tasks.create_task(judge.run())

    def problem() -> str | None:
        return live.problem() or (None if policies.synced.is_set() else "training policies not read yet")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(policies.run())
        tasks.create_task(secrets.run())
        tasks.create_task(elector.run(lead))
        tasks.create_task(serve_probes(config.probe_port, problem))
        await has_certificate.wait()
        # Without the policies a pod would get the defaults although somebody chose otherwise.
        await policies.synced.wait()
        tasks.create_task(_serve_admission(config, live, policies))


async def _serve_admission(config: Config, live: LiveCertificate, policies: Informer[TrainingPolicy]) -> None:
    served = application(lambda: list(policies.items.values()), config.image, config.scheduler_name)
    runner = web.AppRunner(served, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=config.port, ssl_context=live.context).start()
        _LOG.info("admission served", extra={"port": config.port})
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
