"""The whole agent as a process: simulated NVML and kernel log on one side, a real API server on the other."""

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml

from outrider.api import beacon
from outrider.api.beacon import Beacon
from outrider.api.gpunode import GPUNode, Health, Verdict
from outrider.api.names import (
    AGENT_NODE_LABEL,
    CHECKPOINT_REQUEST_ANNOTATION,
    INPOD_VOLUME,
    JOB_UID_LABEL,
    RELEASE_ANNOTATION,
    UNHEALTHY_TAINT,
)
from outrider.api.times import rfc3339
from outrider.kube.client import PatchType, Selector
from outrider.kube.errors import KubeError
from outrider.kube.kinds import DEVICETAINTRULES, EVENTS, GPUNODES, NODES, PODS, RESOURCESLICES
from testbed import control_plane as control_planes
from testbed import kernel_log, nvml, processes
from testbed.faults import Driver, clear, off_bus, xid

pytestmark = pytest.mark.control_plane
_JOB = "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0f0"


class World:
    """One node's driver, its agent, and what the API server says of it."""

    def __init__(self, folder: Path, kubeconfig: Path, client, namespace: str):
        self.folder, self.kubeconfig, self.client, self.namespace = folder, kubeconfig, client, namespace
        self.node = f"node-{secrets.token_hex(3)}"
        self.driver = Driver(folder / "driver")
        self.process: asyncio.subprocess.Process | None = None

    async def prepare(self) -> None:
        nvml.install(self.folder / "driver" / "lib", "h100", seed=self.node)
        kernel_log.create(self.folder / "driver" / "kmsg")
        self.boot("boot-1")
        (self.folder / "pods").mkdir()
        settings = {
            "kernelLogPath": str(self.folder / "driver" / "kmsg"),
            "bootIdPath": str(self.folder / "driver" / "boot_id"),
            "stateDir": str(self.folder / "state"),
            "kubeletPodsDir": str(self.folder / "pods"),
            "clearDwellSeconds": 1,
            "nvmlPeriodSeconds": 0.2,
            "nvmlHangSeconds": 30,
            "heartbeatSeconds": 5,
            "probePort": 0,
        }
        (self.folder / "config.yaml").write_text(yaml.safe_dump(settings))
        taints = [{"key": "dedicated", "value": "team-a", "effect": "NoSchedule"}]
        await self.client.create(NODES, {"metadata": {"name": self.node}, "spec": {"taints": taints}})
        await self.start()

    def boot(self, name: str) -> None:
        (self.folder / "driver" / "boot_id").write_text(f"{name}\n")

    async def start(self) -> None:
        environment = os.environ | {
            "NODE_NAME": self.node,
            "KUBECONFIG": str(self.kubeconfig),
            "LD_LIBRARY_PATH": str(self.folder / "driver" / "lib"),
            "MALLOC_ARENA_MAX": "1",  # as in the chart
            "MALLOC_TRIM_THRESHOLD_": "131072",
        }
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "node_agent", "--config", self.folder / "config.yaml", env=environment, stderr=log
            )

    async def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await self.process.wait()

    async def gpunode(self) -> GPUNode:
        return await self.client.get(GPUNODES, self.node)

    async def taints(self) -> dict[str, str]:
        node = await self.client.get(NODES, self.node)
        return {taint.key: taint.value for taint in node.spec.taints}

    async def events(self, reason: str) -> list[str]:
        """Who was told of this reason: the node, the worker."""
        ours = {("", self.node), (self.namespace, "worker")}
        told = [event.involved_object for event in (await self.client.list(EVENTS)).items if event.reason == reason]
        return sorted(who.name for who in told if (who.namespace, who.name) in ours)

    async def worker(self) -> str:
        """A pod of a training job on the node; returns its UID."""
        container = {"name": "c", "image": "outrider.dev/none"}
        body = {
            "metadata": {"name": "worker", "labels": {JOB_UID_LABEL: _JOB}},
            "spec": {
                "nodeName": self.node,
                "containers": [container],
                "tolerations": [{"operator": "Exists"}],
                "volumes": [{"name": INPOD_VOLUME, "emptyDir": {}}],
            },
        }
        await until(lambda: self._created(body))
        pod = await self.client.get(PODS, "worker", self.namespace)
        (self.folder / "pods" / pod.metadata.uid / "volumes/kubernetes.io~empty-dir/outrider").mkdir(parents=True)
        return pod.metadata.uid

    async def _created(self, body) -> bool:
        try:
            await self.client.create(PODS, body, self.namespace)
        except KubeError:  # the namespace's service account comes a moment after the namespace
            return False
        return True


async def until(question, seconds: float = 30):
    """Ask until the answer is true, and return it."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                if answer := await question():
                    return answer
            except KubeError:
                pass
            await asyncio.sleep(0.02)


@pytest.fixture
async def world(tmp_path, kubeconfig, client, namespace):
    world = World(tmp_path, kubeconfig, client, namespace)
    await world.prepare()
    try:
        await until(lambda: healthy(world))
        yield world
    finally:
        if world.process.returncode is None:
            await world.end()
        await client.delete(NODES, world.node)
        print((tmp_path / "log").read_text())


async def healthy(world: World) -> bool:
    status = (await world.gpunode()).status
    return status.health is Health.HEALTHY and len(status.gpus) == 8


async def unhealthy(world: World) -> bool:
    return (await world.gpunode()).status.health is Health.UNHEALTHY


async def tainted(world: World) -> str | None:
    return (await world.taints()).get(UNHEALTHY_TAINT)


LOST = ("xid-79", "gpu-lost")  # the kernel log and NVML both tell it: the first to be read gives the reason


async def untainted(world: World) -> bool:
    return UNHEALTHY_TAINT not in await world.taints()


async def test_a_lost_gpu_taints_its_node_and_is_told_once(world):
    await world.worker()
    await asyncio.sleep(1)  # the agent's watch of pods sees the worker
    off_bus(world.driver, 3)
    assert await until(lambda: tainted(world), 5) in LOST
    await until(lambda: unhealthy(world))
    status = (await world.gpunode()).status
    assert (status.verdict, status.score) == (Verdict.REBOOT, 0)
    assert status.reason.replace("/", "-") in LOST
    assert [gpu.index for gpu in status.gpus if gpu.health is Health.UNHEALTHY] == [3]

    async def told():
        return await world.events("GPUUnhealthy") == sorted([world.node, "worker"])

    await until(told)
    node = await world.client.get(NODES, world.node)
    assert [c.status for c in node.status.conditions if c.type == "GPUHealthy"] == ["False"]
    assert (await world.taints())["dedicated"] == "team-a"


async def test_a_killed_agent_loses_nothing_and_does_nothing_twice(world):
    xid(world.driver, 2, 95)
    await until(lambda: tainted(world))

    async def told():
        return await world.events("GPUUnhealthy")

    await until(told)
    before = (await world.client.get(NODES, world.node)).spec
    first_seen = (await world.gpunode()).status.findings[0].first_seen
    await world.end(signal.SIGKILL)
    observed = (await world.gpunode()).status.observed_at
    await world.start()

    async def observed_again():
        return (await world.gpunode()).status.observed_at != observed

    await until(observed_again)
    assert (await world.client.get(NODES, world.node)).spec == before
    (finding,) = (await world.gpunode()).status.findings
    assert (finding.code, finding.count, finding.first_seen) == ("xid/95", 1, first_seen)
    assert len(await world.events("GPUUnhealthy")) == 1
    assert len(await world.events("NodeTainted")) == 1


async def test_a_reboot_lifts_our_taint_and_no_other(world):
    off_bus(world.driver, 3)
    await until(lambda: tainted(world))
    await world.end(signal.SIGKILL)
    clear(world.driver)
    kernel_log.clear(world.folder / "driver" / "kmsg")
    world.boot("boot-2")
    await world.start()
    await until(lambda: untainted(world))
    assert await world.taints() == {"dedicated": "team-a"}
    await until(lambda: healthy(world))


async def test_contained_errors_do_not_taint(world):
    xid(world.driver, 1, 94)

    async def seen():
        return (await world.gpunode()).status.reason == "xid/94"

    await until(seen)
    assert await untainted(world)


async def offer_by_dra(world: World) -> None:
    """What NVIDIA's DRA driver publishes for the node."""
    devices = [
        {"name": f"gpu-{gpu}", "attributes": {"uuid": {"string": world.driver.state.get(gpu, "uuid")}}}
        for gpu in range(8)
    ]
    pool = {"name": world.node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "pool": pool, "nodeName": world.node, "devices": devices}
    await world.client.create(RESOURCESLICES, {"metadata": {"name": f"{world.node}-slice"}, "spec": spec})


async def rules(world: World) -> list[str]:
    page = await world.client.list(DEVICETAINTRULES, Selector(labels=f"{AGENT_NODE_LABEL}={world.node}"))
    return sorted(rule.metadata.name for rule in page.items)


async def test_a_gpu_from_dra_is_isolated_alone_and_comes_back(world):
    await offer_by_dra(world)
    off_bus(world.driver, 3)
    name = f"outrider-gpu-3.{world.node}"
    assert await until(lambda: rules(world), 10) == [name]
    rule = await world.client.get(DEVICETAINTRULES, name)
    assert (rule.spec.taint.key, rule.spec.taint.effect) == (UNHEALTHY_TAINT, "NoSchedule")
    await until(lambda: unhealthy(world))
    assert [gpu.index for gpu in (await world.gpunode()).status.gpus if gpu.isolated] == [3]
    assert await untainted(world)
    await world.client.delete(DEVICETAINTRULES, name)  # by hand: it comes back while the verdict stands
    assert await until(lambda: rules(world), 10) == [name]
    clear(world.driver)
    kernel_log.clear(world.folder / "driver" / "kmsg")
    world.boot("boot-2")

    async def gone():
        return not await rules(world)

    await until(gone)
    assert await untainted(world)


async def test_a_fault_of_the_whole_node_taints_the_node_although_gpus_come_from_dra(world):
    await offer_by_dra(world)
    line = "nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 22003, Fatal, Link 46 MINION halted"
    kernel_log.append(world.driver.kmsg, [line])
    await until(lambda: tainted(world))
    assert await rules(world) == []


async def test_the_gpunode_goes_with_its_node(world):
    node = await world.client.get(NODES, world.node)
    (owner,) = (await world.gpunode()).metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Node", world.node, node.metadata.uid)


async def test_an_outage_of_the_api_server_stops_no_judging_and_loses_no_taint(world, control_plane):
    pid = processes.find(control_plane, "kube-apiserver")
    os.kill(pid, signal.SIGSTOP)
    try:
        off_bus(world.driver, 3)
        await asyncio.sleep(12)  # longer than a request may take
        assert world.process.returncode is None
    finally:
        os.kill(pid, signal.SIGCONT)
    control_planes.wait_api(control_plane)
    assert await until(lambda: tainted(world)) in LOST


async def test_people_pause_and_quarantine_a_node(world):
    off_bus(world.driver, 3)
    await until(lambda: tainted(world))

    async def set_mode(mode: str) -> None:
        patch = {"spec": {"mode": mode, "reason": "a person's wish"}}
        await world.client.patch(GPUNODES, world.node, patch, PatchType.MERGE)

    await set_mode("Paused")
    await until(lambda: untainted(world))
    await until(lambda: unhealthy(world))
    await set_mode("Quarantined")
    assert await until(lambda: tainted(world)) == "quarantined"


async def test_a_taint_that_was_removed_by_hand_comes_back_while_the_verdict_stands(world):
    off_bus(world.driver, 3)
    await until(lambda: tainted(world))
    await world.client.patch(NODES, world.node, {"spec": {"taints": None}}, PatchType.MERGE)
    assert await until(lambda: tainted(world)) in LOST


async def test_a_checkpoint_request_reaches_the_pod_and_the_answer_the_status(world):
    uid = await world.worker()
    folder = world.folder / "pods" / uid / "volumes/kubernetes.io~empty-dir/outrider"
    (folder / "rank.1").write_bytes(beacon.encode(Beacon(1, 40, time.time(), 0.1, 30, 7)))

    async def rank():
        return next(iter((await world.gpunode()).status.ranks), None)

    assert (await until(rank)).step == 40
    request = json.dumps({"id": "r1", "reason": "xid/79", "deadline_unix": time.time() + 60})
    patch = {"metadata": {"annotations": {CHECKPOINT_REQUEST_ANNOTATION: request}}}
    await world.client.patch(PODS, "worker", patch, PatchType.MERGE, world.namespace)

    async def delivered():
        return (folder / "ckpt.request").exists()

    await until(delivered)
    assert json.loads((folder / "ckpt.request").read_text())["id"] == "r1"
    answer = {"id": "r1", "rank": 1, "step": 42, "state": "saved", "checkpoint_step": 42, "path": "/c"}
    (folder / "ckpt.done.1").write_text(json.dumps(answer))

    async def answered():
        return (await rank()).acknowledged == "r1"

    await until(answered)
    state = await rank()
    assert (state.acknowledged_state, state.checkpoint_step, state.pod_uid) == ("saved", 42, uid)


async def test_the_agent_with_its_nvml_child_stays_within_100_mb(world):
    (child,) = children(world.process.pid)
    assert rss_bytes(world.process.pid) + rss_bytes(child) <= 100_000_000


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def rss_bytes(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


async def test_a_configuration_that_makes_no_sense_is_refused_by_name(tmp_path):
    (tmp_path / "config.yaml").write_text("nvmlPeriodSeconds: soon\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "node_agent", "--config", tmp_path / "config.yaml", stderr=asyncio.subprocess.PIPE
    )
    _, words = await process.communicate()
    assert process.returncode not in (0, None)
    assert b"nvmlPeriodSeconds" in words


async def test_the_agent_lets_go_of_nvml_while_its_gpunode_asks_for_it(world):
    async def annotate(until_time: str | None) -> None:
        body = {"metadata": {"annotations": {RELEASE_ANNOTATION: until_time}}}
        await world.client.patch(GPUNODES, world.node, body, PatchType.MERGE)

    async def released() -> bool:
        return [finding.code for finding in (await world.gpunode()).status.findings] == ["nvml/released"]

    await annotate(rfc3339(time.time() + 300))
    await until(released)
    assert not any("nvml" in command for command in commands_of_children(world.process.pid))
    status = (await world.gpunode()).status
    assert (status.health, len(status.gpus)) == (Health.HEALTHY, 8)
    await annotate(None)

    async def read_again() -> bool:
        return not (await world.gpunode()).status.findings

    await until(read_again)
    assert any("nvml" in command for command in commands_of_children(world.process.pid))


def commands_of_children(pid: int) -> list[str]:
    return [Path(f"/proc/{child}/cmdline").read_text() for child in children(pid)]
