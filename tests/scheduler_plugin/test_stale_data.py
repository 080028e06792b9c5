"""What the plugin does while the API server can't be heard: it answers, and plans nothing."""

from pathlib import Path

import aiohttp
import msgspec
import pytest
from prometheus_client import REGISTRY

from outrider.kube.client import Client
from outrider.kube.transport import connect
from testbed import cluster
from testbed.state import State
from tests.kube.cable import cable
from tests.scheduler_plugin.attached import plugin_here
from tests.scheduler_plugin.builders import make_pod
from tests.scheduler_plugin.real import eventually

pytestmark = pytest.mark.control_plane

STOPPED = "nothing is planned until the API server is heard again"


async def allowed(port: int, node: str) -> list[str]:
    pod = msgspec.to_builtins(make_pod("alone", gpus=1))
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/filter", json={"Pod": pod, "NodeNames": [node]}) as response,
    ):
        names: list[str] = (await response.json())["NodeNames"]
        return names


def staleness(resource: str) -> float:
    return REGISTRY.get_sample_value("outrider_informer_staleness_seconds", {"resource": resource}) or 0.0


async def test_filter_answers_from_the_last_snapshot_and_nothing_is_planned(
    client: Client,
    namespace: str,
    kubeconfig: Path,
    control_plane: State,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    del client
    cluster.up(control_plane.name, kwok_nodes=48)
    async with (
        cable(kubeconfig, tmp_path / "config") as line,
        connect("t", kubeconfig=tmp_path / "config") as remote,
        plugin_here(remote, leases=namespace, lag_seconds=3.0) as plugin,
    ):

        async def leads() -> bool:
            return REGISTRY.get_sample_value("outrider_leader", {"lease": "outrider-planner"}) == 1

        async def answers() -> bool:
            return await allowed(plugin.port, "kwok-0001") == ["kwok-0001"]

        await eventually(leads)
        await eventually(answers)
        line.refuse = True
        line.cut()

        async def stopped() -> bool:
            return STOPPED in caplog.text

        await eventually(stopped)
        assert await answers()
        assert plugin.readiness() is None

        async def measured() -> bool:
            return staleness("nodes") > 3

        await eventually(measured)
        line.refuse = False

        async def fresh() -> bool:
            return staleness("nodes") < 3

        await eventually(fresh)
        assert await answers()
