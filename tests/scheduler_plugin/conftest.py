"""A kube-scheduler with our extender and planner, on 48 simulated GPU nodes under three leaves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import cluster
from testbed.scheduling import Scheduling, prepare
from testbed.state import State

NODES = 48


@pytest.fixture(scope="session")
def scheduling(
    control_plane: State, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scheduling]:
    """Both processes, up for the whole run."""
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
