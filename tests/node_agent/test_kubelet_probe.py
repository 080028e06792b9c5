"""The kubelet probe: findings that last, and holders asked for when pods change."""

import asyncio

import pytest
from around import Around
from kubelet_server import Server
from protobuf import devices, pod

from node_agent.config import Config
from node_agent.probes.kubelet import KubeletProbe
from outrider.api.core import Node, NodeStatus, Pod, PodStatus
from outrider.api.gpunode import Health, SubjectKind, Verdict
from outrider.api.meta import ObjectMeta
from outrider.health.findings import seen


def node(offered: int) -> Node:
    return Node(status=NodeStatus(capacity={"nvidia.com/gpu": "2"}, allocatable={"nvidia.com/gpu": str(offered)}))


def training(phase: str = "Running", name: str = "train-0") -> Pod:
    metadata = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    return Pod(metadata=metadata, status=PodStatus(phase=phase))


@pytest.fixture
def around():
    around = Around()
    around.node = node(2)
    return around


def probe_of(around: Around, socket: str = "") -> KubeletProbe:
    probe = KubeletProbe(Config(pod_resources_socket=socket))
    probe.attach(around.surroundings)
    return probe


async def watch(probe: KubeletProbe, around: Around, seconds: float) -> None:
    """Read as often as the runner does."""
    for _ in range(int(seconds // probe.period_seconds)):
        around.take("kubelet", await probe.read(), asyncio.get_running_loop().time())
        await asyncio.sleep(probe.period_seconds)


def lose(around: Around) -> None:
    around.memory.findings.append(
        seen("gpu/lost", 0, subject=SubjectKind.GPU, subject_id="GPU-1", line="", source="nvml")
    )


@pytest.mark.looptime
async def test_a_black_hole_is_a_finding_once_it_lasts_and_goes_when_the_counts_agree(around):
    probe = probe_of(around)
    lose(around)
    await watch(probe, around, 100)
    assert "kubelet/black-hole" not in around.codes()
    await watch(probe, around, 60)
    assert around.codes()["kubelet/black-hole"] == ""
    around.node = node(1)
    await watch(probe, around, 60)
    assert "kubelet/black-hole" not in around.codes()


@pytest.mark.looptime
async def test_a_black_hole_stops_new_work_and_accuses_no_gpu(around):
    around.node = node(3)
    await watch(probe_of(around), around, 200)
    judgement = around.judgement()
    assert (judgement.node.verdict, judgement.node.health, judgement.node.score) == (
        Verdict.NO_NEW_WORK,
        Health.DEGRADED,
        50,
    )
    assert {opinion.score for opinion in judgement.gpus.values()} == {100}


@pytest.mark.looptime
async def test_a_gpu_kept_out_of_use_is_only_watched(around):
    around.node = node(1)
    await watch(probe_of(around), around, 200)
    assert around.codes() == {"kubelet/unadvertised": ""}
    assert around.judgement().node.verdict is Verdict.WATCH


@pytest.mark.looptime
async def test_counts_that_differ_for_moments_only_are_no_finding(around):
    probe = probe_of(around)
    for offered in (1, 2, 1, 2, 1, 2):
        around.node = node(offered)
        await watch(probe, around, 60)
    assert around.codes() == {}


@pytest.mark.looptime
async def test_a_finding_stands_over_a_restart_and_while_nothing_can_be_told(around):
    around.node = node(3)
    await watch(probe_of(around), around, 200)
    again = probe_of(around)
    await watch(again, around, 20)
    assert "kubelet/black-hole" in around.codes()
    around.node = None
    await watch(again, around, 300)
    assert "kubelet/black-hole" in around.codes()


async def test_holders_are_asked_for_when_pods_change_and_not_in_between(around, tmp_path):
    async with Server(tmp_path / "kubelet.sock") as server:
        server.answer = pod("default", "train-0", devices("nvidia.com/gpu", "GPU-1"))
        probe = probe_of(around, server.socket)
        around.pods = [training()]
        assert (await probe.read()).holders == {"GPU-1": "uid-train-0"}
        assert (await probe.read()).holders is None
        assert not probe.wake.is_set()
        [changed] = around.pod_callbacks
        changed(training(), training())
        assert not probe.wake.is_set()
        changed(training("Pending"), training())
        assert probe.wake.is_set()
        server.answer = b""
        assert (await probe.read()).holders is None  # a second apart: the kubelet refuses those who ask too often
        probe._ask_at = 0.0  # the second is over
        assert (await probe.read()).holders == {}
        assert len(server.asked) == 2


async def test_pods_that_are_over_hold_nothing(around, tmp_path):
    async with Server(tmp_path / "kubelet.sock") as server:
        server.answer = pod("default", "train-0", devices("nvidia.com/gpu", "GPU-1"))
        around.pods = [training("Succeeded")]
        assert (await probe_of(around, server.socket).read()).holders == {}


@pytest.mark.parametrize("kind", ["failure", "garbage", "nobody"])
async def test_a_kubelet_that_does_not_say_is_watched_and_clears(around, tmp_path, kind):
    async with Server(tmp_path / "kubelet.sock") as server:
        server.answer = b"\xff" * 20
        if kind == "failure":
            server.reply = server.failure
        probe = probe_of(around, server.socket)
        if kind == "nobody":
            await server.__aexit__()
            (tmp_path / "kubelet.sock").touch()
        assert (await probe.read()).states.bad == ()
        probe._ask_at = 0.0
        report = await probe.read()
        assert report.holders is None
        assert [evidence.code for evidence in report.states.bad] == ["kubelet/pod-resources"]
        assert not report.blind


async def test_no_socket_is_no_finding(around, tmp_path):
    report = await probe_of(around, str(tmp_path / "none")).read()
    assert (report.states.bad, report.holders) == ((), None)
