import time
from pathlib import Path

import pytest

from outrider.api.core import Node
from outrider.api.gangplacement import GangPlacement
from outrider.api.meta import ObjectMeta
from outrider.kube.client import Client, Selector
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import EVENTS, GANGPLACEMENTS, NODES
from outrider.kube.transport import connect
from tests.kube.test_custom_resources_on_a_real_api_server import kubectl
from tests.kube.test_requests_to_a_real_api_server import changed, gang

pytestmark = pytest.mark.control_plane


async def placed(client: Client, namespace: str) -> GangPlacement:
    return await client.create(GANGPLACEMENTS, gang("g"), namespace)


async def written(client: Client, namespace: str) -> list[tuple[str, str]]:
    page = await client.list(EVENTS, Selector(namespace))
    return sorted((event.reason, event.message) for event in page.items)


async def test_an_event_shows_in_kubectl_describe(client: Client, namespace: str, kubeconfig: Path) -> None:
    subject = await placed(client, namespace)
    recorder = EventRecorder(client, "outrider-planner")
    await recorder.emit(subject, GANGPLACEMENTS, reason="GangPlanned", message="2 ranks on leaf-0", warning=True)
    told = kubectl(kubeconfig, "describe", "gangplacement", "g", "-n", namespace)
    assert "Warning" in told
    assert "GangPlanned" in told
    assert "outrider-planner" in told
    assert "2 ranks on leaf-0" in told


async def test_the_same_event_is_written_once_in_a_quarter_of_an_hour_also_after_a_restart(
    client: Client, namespace: str
) -> None:
    subject = await placed(client, namespace)
    now = 1_800_000_000.0  # the start of a quarter of an hour
    for _ in range(2):  # the second recorder is the restarted process
        recorder = EventRecorder(client, "outrider-planner", clock=lambda: now)
        for _ in range(3):
            await recorder.emit(subject, GANGPLACEMENTS, reason="A", message="same")
        await recorder.emit(subject, GANGPLACEMENTS, reason="A", message="other")
    assert await written(client, namespace) == [("A", "other"), ("A", "same")]
    now += 901
    await recorder.emit(subject, GANGPLACEMENTS, reason="A", message="same")
    assert await written(client, namespace) == [("A", "other"), ("A", "same"), ("A", "same")]


async def test_an_event_of_a_node_goes_to_the_default_namespace(client: Client) -> None:
    name = f"node-{time.time_ns()}"
    node = Node(metadata=ObjectMeta(name=name, uid=f"uid-of-{name}"))
    await EventRecorder(client, "c").emit(node, NODES, reason="NodeTainted", message="x")
    page = await client.list(EVENTS, Selector("default", fields=f"involvedObject.name={name}"))
    (event,) = page.items
    reference = event.involved_object
    assert (reference.kind, reference.api_version, reference.uid) == ("Node", "v1", f"uid-of-{name}")


async def test_a_message_longer_than_the_api_allows_is_cut_not_lost(client: Client, namespace: str) -> None:
    subject = await placed(client, namespace)
    await EventRecorder(client, "c").emit(subject, GANGPLACEMENTS, reason="A", message="ü" * 5000)
    ((_, message),) = await written(client, namespace)
    assert 1000 < len(message.encode()) <= 1024


async def test_an_event_that_can_not_be_written_is_logged_and_tried_again_next_time(
    client: Client, namespace: str, kubeconfig: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await placed(client, namespace)
    nowhere = changed(kubeconfig, tmp_path / "nowhere", server="https://127.0.0.1:1")
    async with connect("t", kubeconfig=nowhere) as broken:
        recorder = EventRecorder(broken, "c")
        for _ in range(2):
            await recorder.emit(subject, GANGPLACEMENTS, reason="A", message="x")
    assert [record.message for record in caplog.records] == ["event not written"] * 2
