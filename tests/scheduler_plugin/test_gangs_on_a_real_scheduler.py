"""Jobs of the real Job controller, planned by the real planner, bound by a real kube-scheduler."""

import asyncio
import time

import pytest

from outrider.api import reasons
from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement, GangPlacementSpec, PlacementState
from outrider.api.meta import ObjectMeta
from outrider.api.names import WHY_ANNOTATION
from outrider.kube.client import Client, Selector
from outrider.kube.kinds import EVENTS, GANGPLACEMENTS, GPUNODES, JOBS, PODS, PYTORCHJOBS
from testbed.scheduling import Scheduling
from tests.scheduler_plugin.real import (
    LEAF,
    bound,
    create_replica,
    eventually,
    node_of,
    placed,
    placement_of,
    planned,
    pod_spec,
    pods_of,
    set_health,
    submit,
    submit_pytorchjob,
)

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("scheduling", "idle_nodes")]


def nodes_of(pods: list[Pod]) -> list[str]:
    return [pod.spec.node_name for pod in pods]


def leaf_of(node: str) -> int:
    return int(node.removeprefix("kwok-")) // 16


async def single(client: Client, namespace: str, name: str, node: str = "", gpus: int = 8) -> None:
    spec = pod_spec(gated=False, gpus=gpus) | ({"nodeName": node} if node else {})
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    await client.create(PODS, body, namespace)


async def test_a_gang_lands_whole_under_one_leaf_in_rank_order(client: Client, namespace: str) -> None:
    await submit(client, namespace, "train", 8)
    pods = await bound(client, namespace, "train", 8)
    placement = await placed(client, namespace, "job-train", PlacementState.PLACED)
    assert nodes_of(pods) == [rank.node for rank in placement.status.ranks]
    assert len({leaf_of(node) for node in nodes_of(pods)}) == 1
    assert nodes_of(pods) == sorted(set(nodes_of(pods)))
    assert placement.metadata.owner_references[0].name == "train"
    assert placement.status.spares
    assert all(pod.metadata.annotations[WHY_ANNOTATION].startswith("8 pods on 8 nodes under 1 leaf, ") for pod in pods)


async def test_gangs_submitted_together_never_share_a_node(client: Client, namespace: str) -> None:
    names = [f"job{number}" for number in range(6)]
    await asyncio.gather(*(submit_pytorchjob(client, namespace, name, 3) for name in names))
    gangs = [await bound(client, namespace, name, 4) for name in names]
    used = [node for gang in gangs for node in nodes_of(gang)]
    assert len(set(used)) == 24
    assert all(len({leaf_of(node) for node in nodes_of(gang)}) == 1 for gang in gangs)


async def test_a_gang_without_room_says_why_within_a_second_and_is_placed_once_there_is(
    client: Client, namespace: str
) -> None:
    await single(client, namespace, "blocker", "kwok-0020", gpus=1)
    started = time.monotonic()
    await submit(client, namespace, "train", 16, selector={LEAF: "leaf-101"})

    async def explained() -> str:
        placement = await placement_of(client, namespace, "job-train")
        return placement.status.message if placement else ""

    message = await eventually(explained)
    assert message.startswith("needs 16 nodes with 8 free GPUs; 15 healthy and free, ")
    assert "1 in use" in message

    async def told() -> bool:
        return all(pod.metadata.annotations.get(WHY_ANNOTATION, "none yet") in message for pod in await of_job())

    async def of_job() -> list[Pod]:
        return await pods_of(client, namespace, "train")

    await eventually(told)
    seconds = time.monotonic() - started

    async def announced() -> bool:
        events = (await client.list(EVENTS, Selector(namespace))).items
        kinds = {event.involved_object.kind for event in events if event.reason == reasons.GANG_WAITING}
        return kinds == {"Job", "Pod"}

    await eventually(announced)
    await client.delete(PODS, "blocker", namespace)
    assert len(await bound(client, namespace, "train", 16)) == 16
    assert seconds < 30, "created, refused and told: a second on an idle machine"


async def test_a_replacement_gets_the_spare_and_the_others_keep_their_pods(client: Client, namespace: str) -> None:
    await submit_pytorchjob(client, namespace, "train", 2)
    before = await bound(client, namespace, "train", 3)
    placement = await placed(client, namespace, "pytorchjob-train", PlacementState.PLACED)
    sick = before[1].spec.node_name
    await set_health(client, sick, "replace", "Unhealthy", "xid/79")
    await asyncio.sleep(0.5)  # the planner hears of it by its own watch
    try:
        await client.delete(PODS, before[1].metadata.name, namespace)
        await create_replica(client, await client.get(PYTORCHJOBS, "train", namespace), "worker", 0, "-again")
        after = await bound(client, namespace, "train", 3)
        assert [after[rank].metadata.uid for rank in (0, 2)] == [before[rank].metadata.uid for rank in (0, 2)]
        assert after[1].spec.node_name == placement.status.spares[0]
        again = await placed(client, namespace, "pytorchjob-train", PlacementState.PLACED)
        assert again.status.revision == placement.status.revision + 1
    finally:
        await client.delete(GPUNODES, sick)


@pytest.mark.parametrize("moment", range(4))
async def test_a_planner_killed_after_the_plan_is_written_ends_what_it_began(
    client: Client, namespace: str, scheduling: Scheduling, moment: int
) -> None:
    await submit(client, namespace, "train", 16)
    written = await planned(client, namespace, "job-train")
    await asyncio.sleep(moment * 0.01)
    scheduling.kill()
    held = {rank.pod_uid: rank.node for rank in written.status.ranks}
    gated = sum(bool(pod.spec.scheduling_gates) for pod in await pods_of(client, namespace, "train"))
    scheduling.start()
    pods = await bound(client, namespace, "train", 16)
    assert {pod.metadata.uid: pod.spec.node_name for pod in pods} == held, f"{gated} pods were gated at the kill"
    final = await placed(client, namespace, "job-train", PlacementState.PLACED)
    assert final.status.revision == 1


async def test_single_pods_avoid_what_is_unhealthy_unpinned(client: Client, namespace: str) -> None:
    await set_health(client, "kwok-0003", "reset", "Unhealthy", "xid/79")
    await set_health(client, "kwok-0004", "none", "Healthy")
    await asyncio.sleep(0.5)  # the extender hears of it by its own watch
    try:
        for name, node in (("on-sick", "kwok-0003"), ("on-well", "kwok-0004")):
            spec = pod_spec(gated=False, selector={"kubernetes.io/hostname": node})
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
            await client.create(PODS, body, namespace)
        refusal = await eventually(lambda: refusal_of(client, namespace, "on-sick"))
        assert f"1 {reasons.NODE_UNHEALTHY}" in refusal
        assert await node_of(client, namespace, "on-well") == "kwok-0004"
    finally:
        for node in ("kwok-0003", "kwok-0004"):
            await client.delete(GPUNODES, node)


async def refusal_of(client: Client, namespace: str, name: str) -> str:
    pod = await client.get(PODS, name, namespace)
    conditions = [one for one in pod.status.conditions if one.type == "PodScheduled" and one.reason == "Unschedulable"]
    return conditions[0].message if conditions else ""


async def test_pods_of_other_schedulers_are_counted(client: Client, namespace: str) -> None:
    for number in range(32, 48):
        if number != 40:
            await single(client, namespace, f"theirs-{number}", f"kwok-{number:04}", gpus=1)
    await submit(client, namespace, "train", 1, selector={LEAF: "leaf-102"})
    assert nodes_of(await bound(client, namespace, "train", 1)) == ["kwok-0040"]


async def test_a_hand_lifted_gate_keeps_its_pod_in_the_plan(client: Client, namespace: str) -> None:
    await submit(client, namespace, "train", 3, gated=False)
    pods = await bound(client, namespace, "train", 3)
    placement = await placed(client, namespace, "job-train", PlacementState.PLACED)
    assert nodes_of(pods) == [rank.node for rank in placement.status.ranks]


async def test_a_placement_goes_with_its_job(client: Client, namespace: str) -> None:
    await submit(client, namespace, "train", 2)
    await placed(client, namespace, "job-train", PlacementState.PLACED)
    await client.delete(JOBS, "train", namespace)

    async def gone() -> bool:
        return await placement_of(client, namespace, "job-train") is None

    await eventually(gone)


async def test_while_the_extender_is_down_single_pods_go_on_and_gangs_wait(
    client: Client, namespace: str, scheduling: Scheduling
) -> None:
    scheduling.kill()
    try:
        await single(client, namespace, "alone", gpus=1)
        await submit(client, namespace, "train", 2)
        await node_of(client, namespace, "alone")
        assert all(pod.spec.scheduling_gates for pod in await pods_of(client, namespace, "train"))
    finally:
        scheduling.start()
    assert len(await bound(client, namespace, "train", 2)) == 2


async def test_a_placement_made_by_hand_is_told_that_it_is_ignored(client: Client, namespace: str) -> None:
    spec = GangPlacementSpec(job_kind="Job", job_name="nobody", job_uid="nobody", size=3)
    by_hand = GangPlacement(metadata=ObjectMeta(name="job-nobody", namespace=namespace), spec=spec)
    await client.create(GANGPLACEMENTS, by_hand, namespace)

    async def told() -> bool:
        conditions = (await client.get(GANGPLACEMENTS, "job-nobody", namespace)).status.conditions
        return any(one.status == "False" and "'nobody' is no job" in one.message for one in conditions)

    await eventually(told)
