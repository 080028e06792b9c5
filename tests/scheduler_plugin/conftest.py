"""A kube-scheduler with our extender and planner, on 48 simulated GPU nodes under three leaves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.kube.client import Client
from outrider.kube.kinds import PODS
from testbed import cluster
from testbed.scheduling import Scheduling, prepare
from testbed.state import State
from tests.scheduler_plugin.real import eventually

NODES = 48


@pytest.fixture(scope="module")
def scheduling(
    control_plane: State, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scheduling]:
    """Both processes, gone with the module: tests of other parts expect a cluster without a planner."""
    del kubeconfig  # asked for: it installs the custom resources
    state = cluster.up(control_plane.name, kwok_nodes=NODES)
    prepare(state)
    both = Scheduling(state, tmp_path_factory.mktemp("scheduling"), {"planSeconds": 5})
    try:
        both.start()
        both.start_scheduler()
        yield both
    finally:
        both.stop()


@pytest.fixture
async def idle_nodes(client: Client, namespace: str) -> None:
    """Begin once the pods of the test before, whose namespace is being deleted, are gone."""
    del namespace

    async def idle() -> bool:
        return not any(pod.spec.node_name.startswith("kwok-") for pod in (await client.list(PODS)).items)

    await eventually(idle)
