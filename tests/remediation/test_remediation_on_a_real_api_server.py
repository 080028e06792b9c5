import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stage import Stage, controller, until

from outrider.api.core import Pod
from outrider.api.gpunode import Verdict
from outrider.api.remediation import ActionMode, Phase, Remediation
from outrider.kube.client import Client, PatchType
from outrider.kube.kinds import GPUNODES, NODES, PODS, REMEDIATIONS, Kind
from remediation.actions import perform
from remediation.config import Budget, Config
from remediation.decisions import Evict

pytestmark = pytest.mark.control_plane

ENFORCE = Config(
    mode=ActionMode.ENFORCE,
    budget=Budget(max_nodes=10, max_percent=100),
    taint_wait_seconds=0.2,
    no_report_wait_seconds=0.5,
    retry_seconds=0.3,
)


@pytest.fixture
async def stage(client: Client, namespace: str) -> AsyncIterator[Stage]:
    made = Stage(client, namespace)
    await made.add_nodes(4)
    yield made
    await made.remove()


async def isolated(stage: Stage) -> Remediation | None:
    episode = await stage.episode(1)
    return episode if episode and episode.status.phase is not Phase.OPEN else None


async def evicted(stage: Stage) -> list[Pod]:
    return [pod for pod in await stage.pods() if pod.metadata.deletion_timestamp]


async def save_and_move(stage: Stage, uid: str) -> None:
    """Play the ranks, the scheduler and the kubelets from the request to the first step in the new place."""
    requests = await until(lambda: three_requests(stage), "a request on all three pods")
    for number in range(3):
        await stage.report(number, 100, requests[0].id, "saved" if number == 0 else "no-writer")
    await until(lambda: evicted(stage), "an evicted pod")
    await stage.start(uid, 1, 3)
    await stage.report(3, 101)


async def three_requests(stage: Stage) -> dict[int, object] | None:
    found = await stage.requests()
    return found if len(found) == 3 else None  # type: ignore[return-value]


async def test_a_rank_leaves_its_sick_node_and_trains_on(stage, client):
    uid = await stage.add_job(3)
    for number in range(3):
        await stage.report(number, 90)
    before = {pod.metadata.uid for pod in await stage.pods()}
    async with controller(client, ENFORCE):
        await stage.judge(1, Verdict.REPLACE)
        await save_and_move(stage, uid)
        episode = await until(lambda: isolated(stage), "the end of the episode")
    assert episode.status.phase is Phase.ISOLATED
    assert [str(step.state) for step in episode.status.steps] == ["Done"] * 4
    job = episode.status.jobs[0]
    assert (job.name, job.ranks, job.checkpoint_step, job.resumed_step) == ("train", [1], 100, 101)
    assert await stage.tainted(1)
    gone = {pod.metadata.uid for pod in await evicted(stage)}
    assert gone == set(job.pod_uids)
    assert {pod.metadata.uid for pod in await stage.pods()} & before == before
    for reason in ("RemediationStarted", "CheckpointRequested", "RankMoved", "TrainingResumed"):
        assert await stage.events(reason) == {"Node", "Pod", "Remediation"}


@pytest.mark.parametrize("mode", [ActionMode.OBSERVE, ActionMode.DRY_RUN])
async def test_observe_and_dry_run_change_nothing_but_the_episode(stage, client, mode):
    await stage.add_job(3)
    before = {pod.metadata.resource_version for pod in await stage.pods()}
    async with controller(client, Config(mode=mode, taint_wait_seconds=0)):
        await stage.judge(1, Verdict.REPLACE)
        episode = await stage.message(1, "enforce would keep new work off")
        if mode is ActionMode.DRY_RUN:
            await until(lambda: stage.events("WouldAct"), "an event that says what enforce would do")
    assert episode.status.steps == []
    assert {pod.metadata.resource_version for pod in await stage.pods()} == before
    assert not await stage.tainted(1)


async def test_a_disruption_budget_is_respected_and_named(stage, client):
    budgets = Kind(Pod, "poddisruptionbudgets", group="policy")
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "train"}}}
    await client.create(budgets, {"metadata": {"name": "keep"}, "spec": spec}, stage.namespace)
    await stage.add_job(3)
    async with controller(client, ENFORCE):
        await stage.judge(1, Verdict.REPLACE)
        await stage.message(1, "was refused, it is tried again")
        assert await evicted(stage) == []
        await client.delete(budgets, "keep", stage.namespace)
        gone = await until(lambda: evicted(stage), "an evicted pod")
    assert len(gone) == 1


async def test_a_node_that_recovers_before_the_move_keeps_its_pods(stage, client):
    await stage.add_job(3)
    for number in range(3):
        await stage.report(number, 90)
    async with controller(client, ENFORCE):
        await stage.judge(1, Verdict.REPLACE)
        await until(lambda: three_requests(stage), "a request on all three pods")
        await stage.judge(1, Verdict.NONE)
        episode = await until(lambda: isolated(stage), "the end of the episode")
    assert episode.status.phase is Phase.RESOLVED
    assert await evicted(stage) == []


async def test_a_stale_report_opens_no_episode(stage, client):
    await stage.add_job(3)
    async with controller(client, ENFORCE) as working:
        await stage.judge(1, Verdict.REPLACE, observed_at="2020-01-01T00:00:00Z")
        await until(lambda: known(client, stage.node(1)), "the verdict")
        await working.reconcile(stage.node(1))
    assert await stage.episode(1) is None


@pytest.mark.parametrize("cause", ["no lease", "a silent watch"])
async def test_without_lease_or_fresh_watches_nothing_is_opened(stage, client, cause):
    await stage.add_job(3)
    stale = Config(mode=ActionMode.ENFORCE, cache_stale_seconds=0 if cause == "a silent watch" else 120)
    async with controller(client, stale, may_act=lambda: cause != "no lease") as working:
        await stage.judge(1, Verdict.REPLACE)
        for _ in range(5):
            assert await working.reconcile(stage.node(1)) is not None
    assert await stage.episode(1) is None


async def test_the_agents_own_taint_is_proof_enough(stage, client):
    await stage.add_job(3)
    taints = [{"key": "outrider.dev/unhealthy", "value": "xid-79", "effect": "NoSchedule"}]
    await client.patch(NODES, stage.node(1), {"spec": {"taints": taints}}, PatchType.STRATEGIC)
    async with controller(client, ENFORCE):
        await stage.judge(1, Verdict.REPLACE)
        await until(lambda: evicted(stage), "an evicted pod")
    node = await client.get(NODES, stage.node(1))
    assert [taint.key for taint in node.spec.taints].count("outrider.dev/unhealthy") == 1


async def test_an_eviction_meant_for_an_older_pod_of_the_same_name_does_nothing(stage, client):
    await stage.add_job(1)
    pod = (await stage.pods())[0]
    action = Evict(stage.namespace, pod.metadata.name, "another-uid", stage.node(0))
    assert await perform(client, action) == ""
    assert await evicted(stage) == []


async def known(client: Client, node: str) -> bool:
    return (await client.get(GPUNODES, node)).status.verdict.hard


async def test_a_handmade_episode_is_refused_in_its_conditions(stage, client):
    async with controller(client, ENFORCE):
        name = f"{stage.namespace}-mine"
        body = {"metadata": {"name": name}, "spec": {"node": stage.node(1), "cause": "because"}}
        await client.create(REMEDIATIONS, {"apiVersion": "outrider.dev/v1alpha1", "kind": "Remediation", **body})

        async def refused() -> Remediation | None:
            episode = await client.get(REMEDIATIONS, name)
            return episode if episode.status.conditions else None

        episode = await until(refused, "a condition")
    condition = episode.status.conditions[0]
    assert (condition.status, condition.reason) == ("False", "InvalidSpec")
    assert "Delete it" in condition.message


async def test_a_person_cancels_an_episode(stage, client):
    await stage.add_job(3)
    for number in range(3):
        await stage.report(number, 90)
    async with controller(client, ENFORCE):
        await stage.judge(1, Verdict.REPLACE)
        await until(lambda: three_requests(stage), "a request on all three pods")
        episode = await stage.episode(1)
        assert episode is not None
        await client.patch(REMEDIATIONS, episode.metadata.name, {"spec": {"cancel": True}}, PatchType.MERGE)
        episode = await until(lambda: isolated(stage), "the end of the episode")
    assert episode.status.phase is Phase.CANCELLED
    assert await evicted(stage) == []


CONFIG = """
mode: enforce
probePort: 0
taintWaitSeconds: 0.2
budget: {maxPercent: 100}
"""


async def start_process(stage: Stage, kubeconfig: Path, folder: Path) -> asyncio.subprocess.Process:
    config = folder / "config.yaml"
    config.write_text(CONFIG)
    environment = {"KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": stage.namespace, "POD_NAME": "remediation-0"}
    arguments = ["-m", "remediation", "--config", str(config)]
    with (folder / "log").open("ab") as log:
        return await asyncio.create_subprocess_exec(sys.executable, *arguments, env=environment, stderr=log)


async def test_a_controller_killed_again_and_again_ends_the_episode_and_does_nothing_twice(
    stage, client, kubeconfig, tmp_path
):
    uid = await stage.add_job(3)
    for number in range(3):
        await stage.report(number, 90)
    process = await start_process(stage, kubeconfig, tmp_path)

    async def kill_and_restart() -> None:
        nonlocal process
        process.send_signal(signal.SIGKILL)
        await process.wait()
        process = await start_process(stage, kubeconfig, tmp_path)

    try:
        await stage.judge(1, Verdict.REPLACE)
        await until(lambda: stage.tainted(1), "the taint", 30)
        await kill_and_restart()
        requests = await until(lambda: three_requests(stage), "a request on all three pods", 30)
        await kill_and_restart()
        for number in range(3):
            await stage.report(number, 100, requests[0].id, "saved" if number == 0 else "no-writer")
        gone = await until(lambda: evicted(stage), "an evicted pod", 30)
        await kill_and_restart()
        assert {request.id for request in (await stage.requests()).values()} == {requests[0].id}
        await stage.start(uid, 1, 3)
        await stage.report(3, 101)
        episode = await until(lambda: isolated(stage), "the end of the episode", 30)
    finally:
        process.terminate()
        code = await process.wait()
    assert code == 0
    assert episode.status.jobs[0].resumed_step == 101
    assert [pod.metadata.uid for pod in await evicted(stage)] == [pod.metadata.uid for pod in gone]
    assert len([one for one in (await client.list(REMEDIATIONS)).items if one.spec.node == stage.node(1)]) == 1
    assert len((await client.list(PODS)).items) >= 4
