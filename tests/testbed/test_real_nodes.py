"""Real nodes: power, network, and nothing left behind."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from testbed import cluster as clusters
from testbed import control_plane, faults, node, processes
from testbed.node_config import Node
from testbed.state import State
from tests.testbed import leftovers

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def _until(is_true: Callable[[], bool], wait_s: float = 60.0) -> bool:
    deadline = time.monotonic() + wait_s
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.2)
    return is_true()


def _node_object(up: State, name: str) -> dict[str, dict[str, dict[str, str]]]:
    with closing(control_plane.admin(up)) as api:
        found: dict[str, dict[str, dict[str, str]]] = api.get(f"/api/v1/nodes/{name}")
    return found


def test_a_node_has_its_labels_gpus_and_boot_id(cluster: State) -> None:
    found = _node_object(cluster, "gpu-2")
    assert found["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert found["metadata"]["labels"]["kubernetes.io/hostname"] == "gpu-2"
    assert found["metadata"]["labels"]["network.topology.nvidia.com/leaf"] == "leaf-1"
    boot_id = (node.get(cluster, "gpu-2").driver / "boot_id").read_text().strip()
    assert found["status"]["nodeInfo"]["bootID"] == boot_id


def test_a_reboot_gives_a_new_boot_id_and_an_empty_kernel_log(cluster: State) -> None:
    target = node.get(cluster, "gpu-3")
    before = (target.driver / "boot_id").read_text()
    with (target.driver / "kmsg").open("a") as log:
        log.write("4,1,1,-;NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.\n")
    node.reboot(target)
    boot_id = (target.driver / "boot_id").read_text()
    assert boot_id != before
    assert (target.driver / "kmsg").read_text() == ""
    assert _until(lambda: _node_object(cluster, "gpu-3")["status"]["nodeInfo"]["bootID"] == boot_id.strip())
    node.wait_ready(cluster)


def test_a_device_plugin_that_dies_comes_back(cluster: State) -> None:
    target = node.get(cluster, "gpu-1")
    faults.clear(faults.Driver(target.driver))  # with a GPU that another test broke the plugin refuses to start
    log = cluster.folder / "logs" / "gpu-1.nvidia-device-plugin.log"
    before = log.read_text().count("Registered device plugin")
    processes.end(_pids_of("nvidia-device-plugin", target), term_s=0)
    assert _until(lambda: log.read_text().count("Registered device plugin") > before)
    node.wait_ready(cluster)


def test_power_off_ends_everything_on_the_node_at_once_and_up_boots_it_again(cluster: State) -> None:
    target = node.get(cluster, "gpu-3")
    assert _pids_of("kubelet", target)
    node.kill(target)
    assert not node.is_on(target)
    assert not any(_pids_of(name, target) for name in ("kubelet", "containerd", "nvidia-device-plugin"))
    clusters.up(cluster.name, cluster.nodes)
    assert node.is_on(target)


def test_down_of_a_testbed_with_nodes_leaves_nothing(fresh_name: str) -> None:
    with clusters.temporary(f"{fresh_name}-n", nodes=2) as up:
        node.kill(node.get(up, "gpu-0"))
        assert leftovers.of(up.name, up.plan)
    assert leftovers.of(up.name, up.plan) == []


def _pids_of(program: str, target: Node) -> list[int]:
    """Processes of a program on one node, told by the node's network namespace."""
    own = Path(f"/run/netns/{target.state.plan.netns(target.index)}")
    if not own.exists():
        return []
    found = []
    for pid in processes.of_testbed(target.state.name):
        folder = Path(f"/proc/{pid}")
        is_program = (folder / "exe").resolve().name == program
        if is_program and (folder / "ns" / "net").stat().st_ino == own.stat().st_ino:
            found.append(pid)
    return found
