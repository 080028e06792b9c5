"""The extender's contract as kube-scheduler itself sees it. Numbers are those of docs/reference/extender.md."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from outrider.api import reasons
from outrider.kube.client import Client
from outrider.kube.kinds import GPUNODES, NODES, PODS
from scheduler_plugin.app import Plugin
from scheduler_plugin.tls import TLS
from testbed import control_plane as running
from testbed import kwok
from testbed.build import program
from testbed.certificates import Authority
from testbed.ports import free_port
from testbed.scheduling import Scheduling
from testbed.state import State
from tests.scheduler_plugin.attached import (
    create,
    event_of,
    extender,
    kube_scheduler,
    plugin_here,
    verdict,
)
from tests.scheduler_plugin.real import bound, node_of, pods_of, set_health, submit_pytorchjob

pytestmark = [pytest.mark.slow, pytest.mark.control_plane, pytest.mark.usefixtures("scheduling", "idle_nodes")]

SICK, WELL = "kwok-0003", "kwok-0004"
HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture
async def sick(client: Client) -> AsyncIterator[None]:
    """One node's hardware is broken, that of another is known to be well."""
    await set_health(client, SICK, "replace", "Unhealthy", "xid/79")
    await set_health(client, WELL, "none", "Healthy")
    await asyncio.sleep(0.5)  # the extender hears of it by its own watch
    yield
    for node in (SICK, WELL):
        await client.delete(GPUNODES, node)


def only(*nodes: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(nodes)}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.usefixtures("sick")
@pytest.mark.parametrize("names_only", [True, False], ids=["names", "whole-nodes"])
async def test_1_3_4_the_scheduler_follows_filter_in_both_forms(
    client: Client, namespace: str, scheduling: Scheduling, control_plane: State, tmp_path: Path, names_only: bool
) -> None:
    ours = extender(scheduling.extender_url, nodeCacheCapable=names_only)
    with kube_scheduler(control_plane, tmp_path, "both-forms", ours) as name:
        await create(client, namespace, "alone", name, affinity=only(SICK, WELL))
        await create(client, namespace, "on-sick", name, affinity=only(SICK))
        assert await node_of(client, namespace, "alone") == WELL
        said = await verdict(client, namespace, "on-sick")
    assert f"1 {reasons.NODE_UNHEALTHY}" in said
    # What preemption can't cure is told so that it is not tried.
    assert "47 Preemption is not helpful" in said or "48 Preemption is not helpful" in said


async def test_7_8_11_a_pod_that_may_go_anywhere_goes_where_prioritize_wishes(
    client: Client, namespace: str, scheduling: Scheduling, control_plane: State, tmp_path: Path
) -> None:
    await create(client, namespace, "there", "", nodeName="kwok-0021", gpus=4)
    await asyncio.sleep(0.5)  # the extender hears of it by its own watch
    with kube_scheduler(control_plane, tmp_path, "wishes", extender(scheduling.extender_url, weight=100)) as name:
        await create(client, namespace, "small", name)
        assert await node_of(client, namespace, "small") == "kwok-0021"


@pytest.mark.usefixtures("sick")
async def test_9_16_an_extender_that_is_down_stops_pods_or_is_passed_over_as_configured(
    client: Client, namespace: str, control_plane: State, tmp_path: Path
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with (
        kube_scheduler(control_plane, tmp_path, "strict", extender(nobody)) as strict,
        kube_scheduler(control_plane, tmp_path, "lenient", extender(nobody, ignorable=True)) as lenient,
    ):
        await create(client, namespace, "waits", strict)
        await create(client, namespace, "goes", lenient)
        assert await node_of(client, namespace, "goes")
        assert nobody in await verdict(client, namespace, "waits", "SchedulerError")


GARBAGE: list[tuple[int, bytes]] = [
    (200, b"<html>"),
    (200, b""),
    (500, b"{}"),
    (204, b""),
    (200, b'{"NodeNames":["elsewhere"]}'),
    (200, b'{"Error":"broken"}'),
]


@pytest.mark.parametrize("answer", GARBAGE, ids=["html", "nothing", "500", "204", "foreign-name", "error"])
async def test_9_16_what_is_no_answer_counts_as_none(
    client: Client, namespace: str, control_plane: State, tmp_path: Path, answer: tuple[int, bytes]
) -> None:
    async with answering(*answer) as url:
        with kube_scheduler(control_plane, tmp_path, "lenient", extender(url, ignorable=True)) as lenient:
            await create(client, namespace, "goes", lenient)
            assert await node_of(client, namespace, "goes")
        with kube_scheduler(control_plane, tmp_path, "strict", extender(url)) as strict:
            await create(client, namespace, "waits", strict)
            assert await verdict(client, namespace, "waits", "SchedulerError")


@asynccontextmanager
async def answering(status: int, body: bytes) -> AsyncIterator[str]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, content_type="application/json")

    application = web.Application(client_max_size=1 << 27)
    application.router.add_post("/{verb}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_17_every_reason_at_once_fits_the_event(
    client: Client, namespace: str, scheduling: Scheduling, control_plane: State, tmp_path: Path
) -> None:
    silent, replaced = ("kwok-0016", "kwok-0017"), ("kwok-0018", "kwok-0019")
    for node in silent:
        await set_health(client, node, "none", "Unknown")
    for node in replaced:
        await set_health(client, node, "replace", "Unhealthy", "xid/79")
    await client.create(GPUNODES, {**GPUNODE, "metadata": {"name": "kwok-0020"}, "spec": QUARANTINED})
    await asyncio.sleep(0.5)  # the extender hears of it by its own watch
    try:
        nodes = [*silent, *replaced, "kwok-0020"]
        with kube_scheduler(control_plane, tmp_path, "reasons", extender(scheduling.extender_url)) as name:
            await create(client, namespace, "nowhere", name, affinity=only(*nodes))
            said = await verdict(client, namespace, "nowhere")
            told = await event_of(client, namespace, "FailedScheduling")
    finally:
        for node in nodes:
            await client.delete(GPUNODES, node)
    for count, reason in (
        (2, reasons.NODE_UNKNOWN_HEALTH),
        (2, reasons.NODE_UNHEALTHY),
        (1, reasons.NODE_QUARANTINED),
    ):
        assert f"{count} {reason}" in said
        assert f"{count} {reason}" in told
    assert len(told.encode()) <= 1024


GPUNODE = {"apiVersion": "outrider.dev/v1alpha1", "kind": "GPUNode"}
QUARANTINED = {"mode": "Quarantined", "reason": "a test"}


IMPORTANT = "contract-test"


@pytest.fixture
def important(control_plane: State) -> None:
    """A priority above that of other pods; the API server takes a number only from a class."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": IMPORTANT}}
    with closing(running.admin(control_plane)) as api:
        api.ensure("/apis/scheduling.k8s.io/v1/priorityclasses", {**body, "value": 1000})


@pytest.mark.usefixtures("sick", "important")
async def test_10_13_14_preemption_takes_a_node_that_filter_allows_and_the_nominated_pod_gets_it(
    client: Client, namespace: str, scheduling: Scheduling, control_plane: State, tmp_path: Path
) -> None:
    for node in (SICK, WELL):
        await create(client, namespace, f"small-{node}", "", nodeName=node, gpus=8)
    await asyncio.sleep(0.5)  # the extender hears of it by its own watch
    with kube_scheduler(control_plane, tmp_path, "preempts", extender(scheduling.extender_url)) as name:
        await create(
            client,
            namespace,
            "large",
            name,
            gpus=8,
            affinity=only(SICK, WELL),
            priorityClassName=IMPORTANT,
        )
        assert await node_of(client, namespace, "large") == WELL
    left = await client.get(PODS, f"small-{SICK}", namespace)
    assert left.metadata.deletion_timestamp is None


@pytest.mark.usefixtures("important")
async def test_13_no_rank_of_a_gang_is_preempted_for_a_single_pod(
    client: Client, namespace: str, scheduling: Scheduling, control_plane: State, tmp_path: Path
) -> None:
    await submit_pytorchjob(client, namespace, "train", 1)
    ranks = await bound(client, namespace, "train", 2)
    nodes = [pod.spec.node_name for pod in ranks]
    with kube_scheduler(control_plane, tmp_path, "preempts", extender(scheduling.extender_url)) as name:
        await create(client, namespace, "large", name, gpus=8, affinity=only(*nodes), priorityClassName=IMPORTANT)
        assert await verdict(client, namespace, "large")
        await asyncio.sleep(2.5)  # tried twice more
    there = await pods_of(client, namespace, "train")
    assert [pod.metadata.uid for pod in there] == [pod.metadata.uid for pod in ranks]
    assert not (await client.get(PODS, "large", namespace)).status.nominated_node_name


async def test_18_the_answer_comes_in_time_while_a_thread_computes(
    client: Client, namespace: str, control_plane: State, tmp_path: Path
) -> None:
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(number * number for number in range(10_000))

    async with plugin_here(client) as plugin:
        url = f"http://127.0.0.1:{plugin.port}"
        ours = extender(url, httpTimeout="500ms", nodeCacheCapable=False)
        with kube_scheduler(control_plane, tmp_path, "in-time", ours) as name:
            thread = threading.Thread(target=compute)
            thread.start()
            try:
                for number in range(5):
                    await create(client, namespace, f"pod-{number}", name)
                for number in range(5):
                    assert await node_of(client, namespace, f"pod-{number}")
            finally:
                over.set()
                thread.join()


async def test_20_one_connection_serves_pod_after_pod(
    client: Client, namespace: str, control_plane: State, tmp_path: Path
) -> None:
    async with plugin_here(client) as plugin:
        ours = extender(f"http://127.0.0.1:{plugin.port}")
        with kube_scheduler(control_plane, tmp_path, "keeps", ours) as name:
            for number in range(12):
                await create(client, namespace, f"pod-{number}", name)
            for number in range(12):
                await node_of(client, namespace, f"pod-{number}")
            assert connections_to(plugin.port) == 1


def connections_to(port: int) -> int:
    """Count the established connections of clients to a port of loopback."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "01" and int(row[2].rpartition(":")[2], 16) == port for row in rows)


async def test_21_https_with_an_authority_and_a_client_certificate(
    client: Client, namespace: str, control_plane: State, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.server("extender", ["127.0.0.1"])
    ca = str(authority.folder / "ca.crt")
    tls = TLS(cert_file=str(certificate), key_file=str(key), client_ca_file=ca)
    client_certificate, client_key = authority.client("scheduler", "kube-scheduler")
    known = {"caFile": ca, "certFile": str(client_certificate), "keyFile": str(client_key)}
    async with plugin_here(client, extender_tls=tls) as plugin:
        url = f"https://127.0.0.1:{plugin.port}"
        with (
            kube_scheduler(control_plane, tmp_path, "mtls", secure(url, known)) as mutual,
            kube_scheduler(control_plane, tmp_path, "stranger", secure(url, {"caFile": ca})) as stranger,
        ):
            await create(client, namespace, "known", mutual)
            await create(client, namespace, "unknown", stranger)
            assert await node_of(client, namespace, "known")
            assert await verdict(client, namespace, "unknown", "SchedulerError")


def secure(url: str, tls: dict[str, str]) -> dict[str, Any]:
    return extender(url, enableHTTPS=True, tlsConfig=tls)


async def test_a_follower_without_the_plan_says_not_yet_and_another_leader_places_the_gang(
    client: Client, namespace: str, scheduling: Scheduling, control_plane: State, tmp_path: Path
) -> None:
    async with plugin_here(client) as plugin:
        with kube_scheduler(control_plane, tmp_path, "follower", extender(f"http://127.0.0.1:{plugin.port}")) as name:
            scheduling.kill()
            try:
                await submit_pytorchjob(client, namespace, "train", 1, schedulerName=name, schedulingGates=[])
                said = await verdict(client, namespace, "train-master-0")
            finally:
                scheduling.start()
            assert reasons.GANG_NOT_PLANNED in said
            assert len(await bound(client, namespace, "train", 2)) == 2


async def test_a_node_that_was_just_made_is_used_once_it_is_known(
    client: Client, namespace: str, scheduling: Scheduling, control_plane: State, tmp_path: Path
) -> None:
    with kube_scheduler(control_plane, tmp_path, "new-node", extender(scheduling.extender_url)) as name:
        await create(client, namespace, "first", name, affinity=only("kwok-9999"))
        await verdict(client, namespace, "first")
        await client.create(NODES, kwok.node("h100", 9999))
        try:
            assert await node_of(client, namespace, "first") == "kwok-9999"
        finally:
            await client.delete(PODS, "first", namespace)
            await client.delete(NODES, "kwok-9999")


async def test_the_documented_way_to_attach_the_default_scheduler_works(
    client: Client, namespace: str, control_plane: State, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    service = "outrider-extender.outrider-system.svc"
    certificate, key = authority.server("extender", [service])
    ca = str(authority.folder / "ca.crt")
    tls = TLS(cert_file=str(certificate), key_file=str(key), client_ca_file=ca)
    client_certificate, client_key = authority.client("scheduler", "kube-scheduler")
    async with plugin_here(client, extender_tls=tls) as plugin:
        ours = documented()
        assert ours["tlsConfig"]["serverName"] == service
        ours["urlPrefix"] = f"https://127.0.0.1:{plugin.port}"
        ours["ignorable"] = False  # a wrong certificate would be passed over otherwise
        ours["tlsConfig"] |= {"caFile": ca, "certFile": str(client_certificate), "keyFile": str(client_key)}
        with kube_scheduler(control_plane, tmp_path, "documented", ours) as name:
            before = await asked(plugin)
            await create(client, namespace, "plain", name, containers=[{"name": "main", "image": "none"}])
            assert await node_of(client, namespace, "plain")
            assert await asked(plugin) == before, "pods without GPUs are not sent"
            await create(client, namespace, "with-gpu", name)
            assert await node_of(client, namespace, "with-gpu")
            assert await asked(plugin) == before + 1


def documented() -> dict[str, Any]:
    blocks = (Path(__file__).parents[2] / "docs" / "attach.md").read_text().split("```yaml\n")[1:]
    configurations = [yaml.safe_load(block.partition("```")[0]) for block in blocks]
    ours: dict[str, Any] = configurations[0]["extenders"][0]
    return ours


async def asked(plugin: Plugin) -> int:
    """Return how often filter was answered so far."""
    await asyncio.sleep(1.5)  # the extender's process tells its numbers each second
    samples = [sample for metric in plugin.extender_metrics() for sample in metric.samples]
    return sum(int(one.value) for one in samples if one.name.endswith("_count") and one.labels["verb"] == "filter")


async def test_custom_resources_that_go_and_come_back_are_followed_again(
    client: Client, namespace: str, kubeconfig: Path, control_plane: State, tmp_path: Path
) -> None:
    kubectl = [str(program("kubectl")), f"--kubeconfig={kubeconfig}"]
    crds = str(Path(__file__).parents[2] / "charts" / "outrider" / "files" / "crds")
    async with plugin_here(client) as plugin:
        try:
            await run(*kubectl, "delete", "--ignore-not-found", "-f", f"{crds}/gpunodes.yaml")
            assert plugin.readiness() is None, "what is known still holds"
            with kube_scheduler(
                control_plane, tmp_path, "goes-on", extender(f"http://127.0.0.1:{plugin.port}")
            ) as name:
                await create(client, namespace, "meanwhile", name)
                assert await node_of(client, namespace, "meanwhile")
        finally:
            await run(*kubectl, "apply", "--server-side", "-f", crds)
            await run(*kubectl, "wait", "--for=condition=Established", "--timeout=20s", "-f", crds)
        await set_health(client, SICK, "replace", "Unhealthy", "xid/79")
        try:
            with kube_scheduler(control_plane, tmp_path, "again", extender(f"http://127.0.0.1:{plugin.port}")) as name:
                await create(client, namespace, "on-sick", name, affinity=only(SICK))
                assert reasons.NODE_UNHEALTHY in await verdict(client, namespace, "on-sick")
        finally:
            await client.delete(GPUNODES, SICK)


async def run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
