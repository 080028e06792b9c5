"""One episode for a rack on a real API server, with events, and nothing done to its nodes."""

import time
from collections.abc import AsyncIterator

import pytest
from prometheus_client import REGISTRY
from stage import Stage, controller, until

from outrider.api.gpunode import Verdict
from outrider.api.remediation import ActionMode, Phase, Remediation
from outrider.api.times import rfc3339
from outrider.kube.client import Client, PatchType
from outrider.kube.errors import Invalid
from outrider.kube.kinds import EVENTS, REMEDIATIONS
from remediation.config import Budget, Config

pytestmark = pytest.mark.control_plane

RACK = 12
ENFORCE = Config(
    mode=ActionMode.ENFORCE,
    budget=Budget(max_nodes=100, max_percent=100),
    taint_wait_seconds=0.2,
    no_report_wait_seconds=0.5,
    domain_settle_seconds=1.0,
    domain_clear_seconds=2.0,
)


@pytest.fixture
async def stage(client: Client, namespace: str) -> AsyncIterator[Stage]:
    made = Stage(client, namespace)
    await made.add_nodes(RACK)
    yield made
    await made.remove()


async def hit(stage: Stage, numbers: range, code: str = "xid/145") -> None:
    """A switch fails: the agents of the nodes report it one after the other."""
    began = time.time()
    for number in numbers:
        await stage.find(number, code, Verdict.RESET, began)


async def episodes(stage: Stage) -> list[Remediation]:
    found = (await stage.client.list(REMEDIATIONS)).items
    return [one for one in found if one.spec.node.startswith(stage.namespace)]


async def rack(stage: Stage, phase: Phase) -> Remediation | None:
    episode = await stage.rack_episode()
    return episode if episode and episode.status.domain and episode.status.phase is phase else None


async def suspected(stage: Stage, affected: int) -> Remediation:
    async def seen() -> Remediation | None:
        episode = await rack(stage, Phase.OPEN)
        return episode if episode and episode.status.domain.affected == affected else None

    return await until(seen, f"an episode of the rack with {affected} nodes in trouble")


async def explained(stage: Stage) -> bool:
    return "Node" in await stage.events("CommonCause")


async def test_a_switch_fault_opens_one_episode_for_the_rack_and_none_for_its_nodes(stage, client):
    await stage.add_job(3)
    before = {pod.metadata.uid for pod in await stage.pods()}
    async with controller(client, ENFORCE):
        await hit(stage, range(10))
        episode = await suspected(stage, 10)
        await until(lambda: explained(stage), "an event that says why a node gets no episode")
        samples = {"level": "rack", "name": stage.namespace}
        assert REGISTRY.get_sample_value("outrider_domain_score", samples) == 17
        single = await episodes(stage)
        assert len(single) <= 1, "the first node may have failed alone"
        assert all(one.status.phase is Phase.OPEN for one in single)
        for number in range(RACK):
            await stage.judge(number, Verdict.NONE, findings=[])
        ended = await until(lambda: rack(stage, Phase.RESOLVED), "the end of the episode")
    state = episode.status.domain
    assert state is not None
    assert (state.members, state.score, len(state.nodes)) == (RACK, 17, 10)
    assert [one.type for one in episode.status.conditions] == ["Accepted", "Suspect"]
    assert ended.metadata.name == episode.metadata.name
    assert {pod.metadata.uid for pod in await stage.pods()} == before
    assert not any([await stage.tainted(number) for number in range(RACK)])
    assert "Remediation" in {
        event.involved_object.kind
        for event in (await client.list(EVENTS)).items
        if event.reason == "DomainSuspect" and event.involved_object.name == episode.metadata.name
    }


async def test_a_node_with_a_fault_of_its_own_is_isolated_although_its_rack_is_suspect(stage, client):
    async with controller(client, ENFORCE):
        await hit(stage, range(8))
        await suspected(stage, 8)
        await stage.find(9, "remap/failure", Verdict.REPLACE, time.time())
        await until(lambda: stage.tainted(9), "the taint on the node with a fault of its own")
    assert not await stage.tainted(7)


async def test_a_cancelled_suspicion_lets_the_nodes_have_their_episodes(stage, client):
    async with controller(client, ENFORCE):
        await hit(stage, range(8))
        episode = await suspected(stage, 8)
        await client.patch(REMEDIATIONS, episode.metadata.name, {"spec": {"cancel": True}}, PatchType.MERGE)
        await until(lambda: rack(stage, Phase.CANCELLED), "the end of the episode")

        async def all_open() -> bool:
            return len(await episodes(stage)) == 8

        await until(all_open, "an episode for each node")


async def test_a_program_that_crashes_on_all_its_nodes_is_told_once_and_accuses_no_hardware(stage, client):
    await stage.add_job(3)
    crashes = REGISTRY.get_sample_value("outrider_application_crashes_total") or 0.0

    async def told() -> set[str]:
        return await stage.events("ApplicationCrashed")

    async with controller(client, ENFORCE):
        began = time.time()
        for number in range(3):
            await stage.find(number, "xid/31", Verdict.RESTART_APP, began)
        assert await until(told, "an event on a pod of the job") == {"Pod"}
        await stage.find(3, "xid/31", Verdict.RESTART_APP, began)
    assert REGISTRY.get_sample_value("outrider_application_crashes_total") == crashes + 1
    assert await stage.rack_episode() is None
    assert await episodes(stage) == []


async def test_agents_that_fall_silent_together_are_told_as_silence(stage, client):
    long_ago = rfc3339(time.time() - 90)
    async with controller(client, ENFORCE):
        for number in range(RACK):
            await stage.judge(number, Verdict.REPLACE, observed_at=long_ago)
        episode = await until(lambda: rack(stage, Phase.OPEN), "an episode of the rack")
    assert episode.spec.cause == "domain/silence"
    assert "Silence is no fault of hardware" in episode.status.message
    assert await episodes(stage) == []


@pytest.mark.parametrize(
    "spec",
    [{"cause": "x"}, {"cause": "x", "node": ""}, {"cause": "x", "node": "n", "domain": {"level": "rack", "name": "r"}}],
)
async def test_an_episode_is_about_a_node_or_about_a_domain(client, namespace, spec):
    body = {"apiVersion": "outrider.dev/v1alpha1", "kind": "Remediation", "metadata": {"name": namespace}, "spec": spec}
    with pytest.raises(Invalid, match="either the node or the domain"):
        await client.create(REMEDIATIONS, body)


async def test_the_domain_of_an_episode_can_not_change(client, namespace):
    spec = {"cause": "domain/fabric", "domain": {"level": "rack", "name": "r1"}}
    body = {"apiVersion": "outrider.dev/v1alpha1", "kind": "Remediation", "metadata": {"name": namespace}, "spec": spec}
    await client.create(REMEDIATIONS, body)
    with pytest.raises(Invalid, match=r"spec\.domain can't change"):
        await client.patch(REMEDIATIONS, namespace, {"spec": {"domain": {"name": "r2"}}}, PatchType.MERGE)
    await client.delete(REMEDIATIONS, namespace)
