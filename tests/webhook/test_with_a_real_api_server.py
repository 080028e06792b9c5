"""The whole component against a real API server, which calls it over HTTPS and must accept what comes back.

The webhook configuration has failurePolicy Fail here, so that a call that does not work fails the creation.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from outrider.api import names
from outrider.api.meta import ObjectMeta, Resource
from outrider.kube.client import Client, PatchType
from outrider.kube.errors import KubeError
from outrider.kube.kinds import LEASES, TRAININGPOLICIES, WEBHOOK_CONFIGURATIONS, Kind
from testbed.ports import free_port
from tests.webhook.pods import CORPUS, JOB_UID, container, pod
from webhook.app import serve
from webhook.certificates import Lifetimes, Step, apply, now_utc, read
from webhook.config import Config
from webhook.objects import SECRETS
from webhook.rotation import Rotation

pytestmark = pytest.mark.control_plane

HOST: Final = ["localhost"]


class AnyPod(Resource, frozen=True, kw_only=True):
    """A pod with all of its spec."""

    metadata: ObjectMeta
    spec: dict[str, Any]


class Namespace(Resource, frozen=True, kw_only=True):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()


PODS: Final = Kind(AnyPod, "pods")
NAMESPACES: Final = Kind(Namespace, "namespaces", namespaced=False)


class Webhook:
    """The component, running."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.port, self.probe_port = free_port(), free_port()

    def configuration(self) -> dict[str, Any]:
        """Return a configuration that calls it at a loopback URL, for this namespace alone, without a bundle yet."""
        return {
            "metadata": {"name": names.WEBHOOK_CONFIGURATION},
            "webhooks": [
                {
                    "name": "pods.outrider.dev",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"url": f"https://localhost:{self.port}/mutate"},
                    "failurePolicy": "Fail",
                    "timeoutSeconds": 10,
                    "sideEffects": "None",
                    "reinvocationPolicy": "IfNeeded",
                    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["*"]}],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                }
            ],
        }

    @contextlib.asynccontextmanager
    async def running(self, first: dict[str, Any] | None = None) -> AsyncIterator[None]:
        """Serve until the block ends; begins once the API server trusts it, as it creates pod ``first``."""
        config = Config(port=self.port, probe_port=self.probe_port, image="registry.example.com/outrider:1")
        task = asyncio.ensure_future(serve(config, self.client, self.namespace, HOST))
        try:
            await until(lambda: self._is_trusted(first or pod()), task)
            yield
        finally:
            # The API server dials ahead: a connection still in its handshake would outlive the server in this process.
            await asyncio.sleep(0.5)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await until(self._is_quiet)

    async def _is_quiet(self) -> bool:
        """Whether the API server's connections are gone: TLS ends by two goodbyes, the second is the client's."""
        return not _has_connections(self.port)

    async def _is_trusted(self, first: dict[str, Any]) -> bool:
        """Whether the API server has seen the bundle: creation fails until then."""
        with contextlib.suppress(KubeError):
            return (await self.create(first)).spec["schedulerName"] == names.SCHEDULER_NAME
        return False

    async def create(self, body: dict[str, Any]) -> AnyPod:
        """Create a pod and return it as stored."""
        return await self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body}, self.namespace)


async def until(condition: Callable[[], Any], task: "asyncio.Future[None] | None" = None, seconds: float = 40) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            if task is not None and task.done():
                task.result()
            await asyncio.sleep(0.1)


@pytest.fixture
async def webhook(client: Client, namespace: str) -> AsyncIterator[Webhook]:
    made = Webhook(client, namespace)
    await client.delete(WEBHOOK_CONFIGURATIONS, names.WEBHOOK_CONFIGURATION)
    await client.create(WEBHOOK_CONFIGURATIONS, made.configuration())
    yield made
    await client.delete(WEBHOOK_CONFIGURATIONS, names.WEBHOOK_CONFIGURATION)


async def test_api_server_accepts_every_mutated_pod_of_the_corpus(webhook: Webhook) -> None:
    async with webhook.running():
        for name, body in CORPUS.items():
            created = await webhook.create(body)
            inits = [each["name"] for each in created.spec["initContainers"]]
            assert inits.count("outrider-inpod") == 1, name
            assert names.TRACEPARENT_ANNOTATION in created.metadata.annotations, name


async def test_member_of_a_job_waits_at_the_gate_and_a_pod_without_gpus_is_not_touched(webhook: Webhook) -> None:
    async with webhook.running():
        created = await webhook.create(pod())
        assert created.spec["schedulingGates"] == [{"name": names.GANG_GATE}]
        assert created.metadata.labels[names.JOB_UID_LABEL] == JOB_UID
        plain = await webhook.create(pod(container(resources={})))
        assert plain.spec["schedulerName"] == "default-scheduler"
        assert "initContainers" not in plain.spec


async def test_mutated_pod_passes_the_restricted_pod_security_standard(webhook: Webhook) -> None:
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await webhook.client.patch(NAMESPACES, webhook.namespace, labels, PatchType.MERGE)
    security = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    async with webhook.running(pod(container(securityContext=security))):
        created = await webhook.create(pod(container(securityContext=security)))
        assert created.spec["initContainers"][0]["name"] == "outrider-inpod"


async def test_policy_is_judged_and_holds(webhook: Webhook) -> None:
    client = webhook.client
    wrong = {"metadata": {"name": "wrong"}, "spec": {"selector": {"not a label": "x"}}}
    off = {"metadata": {"name": "off"}, "spec": {"selector": {"outrider-test": "off"}, "inject": False}}
    try:
        async with webhook.running():
            for policy in (wrong, off):
                body = {"apiVersion": names.API_VERSION, "kind": "TrainingPolicy", **policy}
                await client.create(TRAININGPOLICIES, body)

            async def judged() -> bool:
                both = [await client.get(TRAININGPOLICIES, name) for name in ("wrong", "off")]
                return [[c.status for c in each.status.conditions] for each in both] == [["False"], ["True"]]

            await until(judged)
            created = await webhook.create(pod(metadata={"labels": {"outrider-test": "off"}}))
            assert created.spec["schedulerName"] == "default-scheduler"
    finally:
        for name in ("wrong", "off"):
            await client.delete(TRAININGPOLICIES, name)


async def test_leader_makes_certificates_and_readiness_follows(webhook: Webhook) -> None:
    async with webhook.running():
        secret = await webhook.client.get(SECRETS, names.WEBHOOK_SECRET, webhook.namespace)
        assert read(secret) is not None
        lease = await webhook.client.get(LEASES, names.WEBHOOK_LEASE, webhook.namespace)
        assert lease.spec.holder_identity
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://localhost:{webhook.probe_port}/readyz") as response:
                assert response.status == 200
            async with session.get(f"http://localhost:{webhook.probe_port}/metrics") as response:
                assert 'outrider_webhook_reviews_total{outcome="mutated"}' in await response.text()


async def test_whole_rotation_of_the_ca_fails_no_pod(webhook: Webhook) -> None:
    client, now = webhook.client, now_utc()
    old = apply(Step.CREATE, None, HOST, now - timedelta(days=500), Lifetimes(serving=timedelta(days=700)))
    body = {"metadata": {"name": names.WEBHOOK_SECRET}, "type": "kubernetes.io/tls", "data": old.data()}
    await client.create(SECRETS, body, webhook.namespace)
    created: list[str] = []

    async def keep_creating() -> None:
        while True:
            stored = await webhook.create(pod())
            assert stored.spec["schedulerName"] == names.SCHEDULER_NAME
            created.append(stored.metadata.name)

    async def at(later: timedelta, *expected: Step) -> None:
        rotation = Rotation(client, webhook.namespace, HOST, clock=lambda: now_utc() + later)
        for step in expected:
            assert await rotation.step() is step
        seen = len(created)
        await until(lambda: _more_than(created, seen + 5))

    async with webhook.running():  # its leader has begun: the aged CA got a successor, which is published
        load = asyncio.ensure_future(keep_creating())
        await at(timedelta(0))
        assert len(await _cas(webhook)) == 2
        await at(timedelta(minutes=2), Step.ISSUE)
        await at(timedelta(hours=2), Step.DROP_CA, Step.PUBLISH)
        assert len(await _cas(webhook)) == 1
        assert not load.done() or load.result() is None
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await load
    assert len(created) >= 15


async def _more_than(items: list[str], count: int) -> bool:
    return len(items) > count


async def _cas(webhook: Webhook) -> tuple[bytes, ...]:
    material = read(await webhook.client.get(SECRETS, names.WEBHOOK_SECRET, webhook.namespace))
    assert material is not None
    return material.cas


def _has_connections(port: int) -> bool:
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established, close_wait = "01", "08"
    return any(line[1].endswith(f":{port:04X}") and line[3] in (established, close_wait) for line in lines)
