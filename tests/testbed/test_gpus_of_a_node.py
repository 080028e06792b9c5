"""NVIDIA's own device plugin, a client of NVML that is not ours, believes the simulated library."""

import time
from contextlib import closing

import pytest

from testbed import control_plane, faults, node
from testbed.state import State

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def _gpus(up: State, name: str) -> str:
    with closing(control_plane.admin(up)) as api:
        return str(api.get(f"/api/v1/nodes/{name}")["status"]["allocatable"]["nvidia.com/gpu"])


def _wait_for_gpus(up: State, name: str, count: str, wait_s: float = 60.0) -> str:
    deadline = time.monotonic() + wait_s
    while _gpus(up, name) != count and time.monotonic() < deadline:
        time.sleep(0.5)
    return _gpus(up, name)


def test_a_gpu_that_falls_off_the_bus_is_no_longer_given_out_and_a_reboot_brings_it_back(cluster: State) -> None:
    name = cluster.node_names[-1]
    target = node.get(cluster, name)
    faults.off_bus(faults.Driver(target.driver), 3)
    assert _wait_for_gpus(cluster, name, "7") == "7"
    node.reboot(target)
    assert _wait_for_gpus(cluster, name, "8") == "8"
    node.wait_ready(cluster)
