"""The kubelet of a real node, with NVIDIA's device plugin on the simulated library, as the kubelet probe sees it."""

import asyncio
import time
from contextlib import closing

import msgspec
import pytest
from around import Around, record

from node_agent.config import Config
from node_agent.probes.kubelet import KubeletProbe
from outrider.api.core import Node, Pod
from testbed import control_plane, faults, node
from testbed.node_config import SANDBOX_IMAGE
from testbed.state import State

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


class RealNode:
    """One node of the cluster, looked at through the API server and its kubelet's socket."""

    def __init__(self, up: State, namespace: str) -> None:
        self.up, self.namespace = up, namespace
        self.target = node.get(up, up.node_names[0])
        self.driver = faults.Driver(self.target.driver)
        self.around = Around(gpus=0)
        count = self.driver.state.gpu_count()
        uuids = [self.driver.state.get(index, "uuid") for index in range(count)]
        self.around.memory.inventory.extend(record(index, uuid=uuid) for index, uuid in enumerate(uuids))
        self.uuids = uuids
        socket = self.target.disk / "kubelet" / "pod-resources" / "kubelet.sock"
        self.probe = KubeletProbe(Config(pod_resources_socket=str(socket), kubelet_mismatch_seconds=1.0))
        self.probe.attach(self.around.surroundings)

    def look(self) -> None:
        with closing(control_plane.admin(self.up)) as api:
            self.around.node = msgspec.convert(api.get(f"/api/v1/nodes/{self.target.name}"), Node)
            pods = api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
            self.around.pods = [msgspec.convert(pod, Pod) for pod in pods]

    def start(self, name: str, gpus: int) -> None:
        limits = {"nvidia.com/gpu": str(gpus)}
        container = {"name": "c", "image": SANDBOX_IMAGE, "resources": {"limits": limits}}
        spec = {"nodeName": self.target.name, "containers": [container], "terminationGracePeriodSeconds": 0}
        with closing(control_plane.admin(self.up)) as api:
            body = {"metadata": {"name": name}, "spec": spec}
            api.ensure(f"/api/v1/namespaces/{self.namespace}/pods", body)

    def stop(self, name: str) -> None:
        with closing(control_plane.admin(self.up)) as api:
            api.call("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    async def holders(self, count: int) -> dict[str, str]:
        """Ask until so many GPUs are held; a change of pods is what makes the probe ask."""
        deadline = time.monotonic() + 60
        while True:
            self.look()
            for changed in self.around.pod_callbacks:
                changed(None, None)
            held = (await self.probe.read()).holders
            if (held is not None and len(held) == count) or time.monotonic() > deadline:
                return held
            await asyncio.sleep(0.2)

    async def findings(self, code: str) -> list[str]:
        """Read until there is a finding of this code, or for a while where there is none."""
        deadline = time.monotonic() + 20
        while True:
            self.look()
            codes = [evidence.code for evidence in (await self.probe.read()).states.bad]
            if code in codes or time.monotonic() > deadline:
                return codes
            await asyncio.sleep(0.5)


@pytest.fixture
def real(cluster: State, namespace: str) -> RealNode:
    return RealNode(cluster, namespace)


async def test_the_kubelet_tells_which_pod_holds_which_gpu(real: RealNode) -> None:
    assert await real.holders(0) == {}
    real.start("two", gpus=2)
    held = await real.holders(2)
    [pod] = real.around.pods
    assert set(held.values()) == {pod.metadata.uid}
    assert set(held) <= set(real.uuids)
    real.stop("two")
    assert await real.holders(0) == {}


async def test_the_counts_of_a_healthy_node_agree_and_a_gpu_that_nvml_lost_alone_makes_a_black_hole(
    real: RealNode,
) -> None:
    real.look()
    report = await real.probe.read()
    assert (report.states.bad, report.states.readable) == ((), {""})
    real.around.memory.inventory.pop()  # NVML lists one GPU less than the kubelet offers
    assert await real.findings("kubelet/black-hole") == ["kubelet/black-hole"]


async def test_a_gpu_that_the_plugin_takes_out_of_use_is_unadvertised_while_nvml_can_use_it(real: RealNode) -> None:
    faults.off_bus(real.driver, 3)
    assert await real.findings("kubelet/unadvertised") == ["kubelet/unadvertised"]
    node.reboot(real.target)
    node.wait_ready(real.up)
