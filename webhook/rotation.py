"""Carries out the steps of certificate rotation against the API server. Runs on the leader only."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from outrider.api.admission import MutatingWebhookConfiguration
from outrider.api.names import WEBHOOK_CONFIGURATION, WEBHOOK_SECRET
from outrider.kube.client import Client, PatchType
from outrider.kube.errors import KubeError, NotFound
from outrider.kube.kinds import WEBHOOK_CONFIGURATIONS
from webhook import metrics
from webhook.certificates import Lifetimes, Material, Step, apply, next_step, now_utc, read
from webhook.objects import SECRETS, Secret, bundle_patch

_LOG: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 15.0  # also how soon an upgrade that took the bundle away is made good


class Rotation:
    """Keeps Secret and webhook configuration as ``certificates`` wants them."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        names: Sequence[str],
        *,
        lifetimes: Lifetimes = Lifetimes(),  # noqa: B008 - immutable
        clock: Callable[[], datetime] = now_utc,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._names = names
        self._lifetimes = lifetimes
        self._clock = clock

    async def run(self) -> None:
        """Take due steps until cancelled. A failed one is tried again at the next check."""
        while True:
            try:
                while await self.step():
                    continue
            except KubeError as error:
                _LOG.warning("certificate step failed, will try again", extra={"problem": str(error)})
            await asyncio.sleep(CHECK_SECONDS)

    async def step(self) -> Step | None:
        """Take the step that is due and return it, None where all is well.

        Raises KubeError; Conflict where somebody else wrote meanwhile.
        """
        secret, configuration = await self._secret(), await self._configuration()
        material, now = read(secret), self._clock()
        patch = bundle_patch(configuration, material.bundle) if configuration and material else []
        step = next_step(material, not patch, self._names, now, self._lifetimes)
        if step is None:
            return None
        if step is Step.PUBLISH:
            await self._client.patch(WEBHOOK_CONFIGURATIONS, WEBHOOK_CONFIGURATION, patch, PatchType.JSON)
        else:
            await self._store(secret, apply(step, material, self._names, now, self._lifetimes))
        metrics.ROTATIONS.labels(step.value).inc()
        _LOG.info("certificate step", extra={"step": step.value})
        return step

    async def _secret(self) -> Secret | None:
        try:
            return await self._client.get(SECRETS, WEBHOOK_SECRET, self._namespace)
        except NotFound:
            return None

    async def _configuration(self) -> MutatingWebhookConfiguration | None:
        try:
            return await self._client.get(WEBHOOK_CONFIGURATIONS, WEBHOOK_CONFIGURATION)
        except NotFound:
            _LOG.warning(
                "no webhook configuration: pods are admitted unchanged", extra={"configuration": WEBHOOK_CONFIGURATION}
            )
            return None

    async def _store(self, old: Secret | None, material: Material) -> None:
        if old is None:
            body = {"metadata": {"name": WEBHOOK_SECRET}, "type": "kubernetes.io/tls", "data": material.data()}
            await self._client.create(SECRETS, body, self._namespace)
            return
        condition = {"resourceVersion": old.metadata.resource_version}
        body = {"metadata": condition, "data": material.data()}
        await self._client.patch(SECRETS, WEBHOOK_SECRET, body, PatchType.MERGE, self._namespace)
