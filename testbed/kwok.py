"""Simulated nodes: real Node objects that KWOK keeps Ready and on which it pretends to run pods."""

import time
from typing import Any

from testbed import control_plane, kubeconfig, labels, processes
from testbed.build import program
from testbed.certificates import Authority
from testbed.say import Say, step
from testbed.state import State

TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""Keeps pods that must really run off simulated nodes; pods that may land there tolerate it."""

_ANNOTATION = "kwok.x-k8s.io/node"
_POLL_S = 0.2
_READY_S = 120.0


def up(state: State, first: int, count: int, say: Say) -> None:
    """Start KWOK and create nodes kwok-FIRST to kwok-(COUNT-1), and wait until all are Ready."""
    with step(say, f"{count} simulated nodes", "Ready"):
        start(state)
        api = control_plane.admin(state)
        for index in range(first, count):
            api.ensure("/api/v1/nodes", node(state.profile, index))
        _wait_ready(state, count)
        api.close()


def start(state: State) -> None:
    """Start the KWOK controller unless it runs."""
    if processes.find(state, "kwok") is not None:
        return
    authority = Authority(control_plane.certificates(state))
    config = state.folder / "kubeconfigs" / "kwok"
    kubeconfig.write(config, state.plan.api_url, authority, "kwok", "system:masters")
    argv = [
        program("kwok"),
        f"--kubeconfig={config}",
        f"--manage-nodes-with-annotation-selector={_ANNOTATION}=fake",
        "--node-lease-duration-seconds=40",
        f"--server-address=127.0.0.1:{state.plan.port('kwok')}",
    ]
    processes.spawn(state, "kwok", argv)


def node(profile_name: str, index: int) -> dict[str, Any]:
    """Node object kwok-INDEX with the labels and GPUs of a profile."""
    name = f"kwok-{index:04d}"
    resources = {
        "cpu": "192",
        "memory": "2Ti",
        "pods": "110",
        "nvidia.com/gpu": str(labels.profile(profile_name).gpus),
    }
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "type": "kwok"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": own | labels.simulated(profile_name, index),
            "annotations": {_ANNOTATION: "fake"},
        },
        "spec": {"taints": [TAINT]},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _wait_ready(state: State, count: int) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and _ready(state) < count:
        processes.require_running(state, "kwok")
        time.sleep(_POLL_S)


def _ready(state: State) -> int:
    api = control_plane.admin(state)
    nodes = api.get("/api/v1/nodes?labelSelector=type%3Dkwok&resourceVersion=0")["items"]
    api.close()
    return sum(is_ready(n) for n in nodes)


def is_ready(node_object: dict[str, Any]) -> bool:
    """Whether a Node is Ready and its not-ready taint is gone, so that pods can be scheduled."""
    conditions = node_object.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = node_object["spec"].get("taints", [])
    return ready and not any(t["key"].startswith("node.kubernetes.io/not-ready") for t in taints)
