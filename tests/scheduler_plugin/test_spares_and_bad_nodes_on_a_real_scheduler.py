"""A lent spare is called in by kube-scheduler's own preemption; bad nodes and suspect leaves get nothing new."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outrider.api import reasons
from outrider.api.core import Pod
from outrider.api.event import Event
from outrider.api.gangplacement import PlacementState
from outrider.api.times import rfc3339
from outrider.kube.client import Client, PatchType, Selector
from outrider.kube.errors import NotFound
from outrider.kube.kinds import EVENTS, GPUNODES, NODES, PODS, PYTORCHJOBS, REMEDIATIONS, TRAININGPOLICIES, Kind
from outrider.topology import domains_of
from tests.scheduler_plugin.builders import RULES
from tests.scheduler_plugin.real import (
    LEAF,
    bound,
    create_replica,
    eventually,
    node_of,
    placed,
    pod_spec,
    set_health,
    submit_pytorchjob,
)

pytestmark = [pytest.mark.slow, pytest.mark.control_plane, pytest.mark.usefixtures("scheduling", "idle_nodes")]

HOSTNAME = "kubernetes.io/hostname"


class PriorityClass(Event, frozen=True, kw_only=True):
    """Only made and removed here."""


CLASSES: Kind[PriorityClass] = Kind(PriorityClass, "priorityclasses", group="scheduling.k8s.io", namespaced=False)


@pytest.fixture
async def important(client: Client, namespace: str) -> AsyncIterator[str]:
    """A priority class above all pods without one."""
    name = f"important-{namespace}"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 100}
    await client.create(CLASSES, body)
    yield name
    await client.delete(CLASSES, name)


@pytest.fixture
async def keeps_spares(client: Client, namespace: str) -> AsyncIterator[None]:
    """Gangs of the namespace keep one spare node each."""
    spec = {"namespaces": [namespace], "spares": 1, "keepSpares": True}
    body = {"apiVersion": "outrider.dev/v1alpha1", "kind": "TrainingPolicy", "spec": spec}
    await client.create(TRAININGPOLICIES, {**body, "metadata": {"name": namespace}})
    await asyncio.sleep(0.5)  # the planner hears of it by its own watch
    yield
    await client.delete(TRAININGPOLICIES, namespace)


async def single(client: Client, namespace: str, name: str, gpus: int = 8, **spec: Any) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}
    await client.create(PODS, {**body, "spec": pod_spec(gated=False, gpus=gpus) | spec}, namespace)


@pytest.mark.usefixtures("keeps_spares")
async def test_a_kept_spare_is_lent_and_given_to_the_rank_that_needs_it(
    client: Client, namespace: str, important: str
) -> None:
    await submit_pytorchjob(client, namespace, "train", 2, priorityClassName=important)
    before = await bound(client, namespace, "train", 3)
    placement = await placed(client, namespace, "pytorchjob-train", PlacementState.PLACED)
    [spare] = placement.status.spares
    await single(client, namespace, "borrower", nodeSelector={HOSTNAME: spare})
    assert await node_of(client, namespace, "borrower") == spare
    taken = {spare, *(pod.spec.node_name for pod in before)}
    others = [node.metadata.name for node in (await client.list(NODES)).items if node.metadata.name not in taken]
    await asyncio.gather(
        *(single(client, namespace, f"full-{name}", nodeName=name, priorityClassName=important) for name in others)
    )
    sick = before[1].spec.node_name
    await set_health(client, sick, "replace", "Unhealthy", "xid/79")
    await asyncio.sleep(0.5)  # the planner hears of it by its own watch
    try:
        await client.delete(PODS, before[1].metadata.name, namespace)
        job = await client.get(PYTORCHJOBS, "train", namespace)
        await create_replica(client, job, "worker", 0, "-again", priorityClassName=important)
        after = await bound(client, namespace, "train", 3)
        assert after[1].spec.node_name == spare
        assert [after[rank].metadata.uid for rank in (0, 2)] == [before[rank].metadata.uid for rank in (0, 2)]
        with pytest.raises(NotFound):
            await client.get(PODS, "borrower", namespace)
    finally:
        await client.delete(GPUNODES, sick)


async def test_a_node_that_rejects_pods_gets_no_more_and_is_told_so(client: Client, namespace: str) -> None:
    hole = "kwok-0040"
    for index in range(3):
        await single(client, namespace, f"lost-{index}", gpus=1, nodeName=hole)
        await node_of(client, namespace, f"lost-{index}")
        failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "startTime": rfc3339(time.time())}
        await client.patch(PODS, f"lost-{index}", {"status": failed}, PatchType.MERGE, namespace, "status")
    await asyncio.sleep(0.5)  # the extender hears of it by its own watch
    await single(client, namespace, "next", gpus=1, nodeSelector={HOSTNAME: hole})

    async def refused() -> bool:
        pod: Pod = await client.get(PODS, "next", namespace)
        said = [one.message for one in pod.status.conditions if one.reason == "Unschedulable"]
        return any(reasons.NODE_REJECTS in one for one in said)

    async def told() -> list[Event]:
        events = (await client.list(EVENTS, Selector("default"))).items
        return [one for one in events if one.reason == reasons.NODE_AVOIDED and one.involved_object.name == hole]

    assert await eventually(refused)
    [event] = await eventually(told)
    assert "3 pods failed there within 10 min: UnexpectedAdmissionError" in event.message


async def test_no_new_gang_goes_under_a_suspect_leaf(client: Client, namespace: str) -> None:
    node = await client.get(NODES, "kwok-0000")
    known = domains_of(node.metadata.name, node.metadata.labels, RULES.levels)
    domain = next({"level": one.level, "name": one.name} for one in known if one.level == "leaf")
    body = {"apiVersion": "outrider.dev/v1alpha1", "kind": "Remediation", "metadata": {"name": f"leaf-{namespace}"}}
    there = await client.create(REMEDIATIONS, {**body, "spec": {"cause": "domain/network", "domain": domain}})
    try:
        await asyncio.sleep(0.5)  # the planner hears of it by its own watch
        await submit_pytorchjob(client, namespace, "train", 15)
        pods = await bound(client, namespace, "train", 16)
        leaves = {(await client.get(NODES, pod.spec.node_name)).metadata.labels[LEAF] for pod in pods}
        assert len(leaves) == 1
        assert node.metadata.labels[LEAF] not in leaves
    finally:
        await client.delete(REMEDIATIONS, there.metadata.name)
