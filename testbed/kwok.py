"""Simulated nodes: real Node objects that KWOK keeps Ready and on which it pretends to run pods."""

import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from testbed import control_plane, kubeconfig, kwok_stages, labels, processes, versions
from testbed.build import program
from testbed.certificates import Authority
from testbed.errors import TestbedError
from testbed.say import Say, step
from testbed.state import State

TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""Keeps pods that must really run off simulated nodes; pods that may land there tolerate it."""

_ANNOTATION = "kwok.x-k8s.io/node"
_POLL_S = 1.0
_READY_S = 120.0
_READY_EACH_S = 0.05
_CREATORS = 8
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_NODE_INFO = {
    "architecture": "amd64",
    "operatingSystem": "linux",
    "osImage": "",
    "kernelVersion": "",
    "kubeletVersion": f"v{versions.KUBERNETES}",
    "kubeProxyVersion": "",
    "containerRuntimeVersion": "kwok://fake",
    "bootID": "",
    "machineID": "",
    "systemUUID": "",
}
_OPTIONS = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    "options": {
        "nodePlayStageParallelism": 16,
        "podPlayStageParallelism": 16,
        "nodeLeaseParallelism": 16,
    },
}

# Renewed each quarter of it: 30 s, below the 50 s after which the node controller gives a node up. At 10 s, 5,000 idle
# nodes kept API server, etcd and KWOK busy with 1.2 CPUs, at 30 s with 0.6.
_LEASE_SECONDS = 120


def up(state: State, first: int, count: int, say: Say) -> None:
    """Start KWOK and create nodes kwok-FIRST to kwok-(COUNT-1), and wait until all are Ready.

    Raises:
        TestbedError: some were not Ready within two minutes and 50 ms a node.
    """
    with step(say, f"{count} simulated nodes", "Ready"):
        start(state)
        with ThreadPoolExecutor(_CREATORS) as pool:
            for done in [pool.submit(_create, state, range(first + i, count, _CREATORS)) for i in range(_CREATORS)]:
                done.result()
        _wait_ready(state, count)


def _create(state: State, indices: Iterable[int]) -> None:
    with closing(control_plane.admin(state)) as api:
        for index in indices:
            new = node(state.profile, index)
            api.ensure("/api/v1/nodes", new)
            # The API server taints every new node as not ready, and the controller that lifts that is slow.
            api.patch(f"/api/v1/nodes/{new['metadata']['name']}", {"spec": new["spec"]})


def start(state: State) -> None:
    """Start the KWOK controller unless it runs."""
    if processes.find(state, "kwok") is not None:
        return
    authority = Authority(control_plane.certificates(state))
    config = state.folder / "kubeconfigs" / "kwok"
    kubeconfig.write(config, state.plan.api_url, authority, "kwok", "system:masters")
    options = state.folder / "kwok.yaml"
    options.write_text(f"{json.dumps(_OPTIONS)}\n{kwok_stages.documents()}")
    argv = [
        program("kwok"),
        f"--config={options}",
        "--v=WARN",
        f"--kubeconfig={config}",
        f"--manage-nodes-with-annotation-selector={_ANNOTATION}=fake",
        f"--node-lease-duration-seconds={_LEASE_SECONDS}",
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
        "status": {
            "phase": "Running",
            "capacity": resources,
            "allocatable": resources,
            # Ready from the beginning: KWOK then only has to keep it so.
            "conditions": [_condition("Ready", "True"), *(_condition(c, "False") for c in _PRESSURES)],
            "nodeInfo": _NODE_INFO,
        },
    }


def _condition(kind: str, status: str) -> dict[str, str]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": status, "reason": "Simulated", "message": "simulated by KWOK", **times}


def _wait_ready(state: State, count: int) -> None:
    deadline = time.monotonic() + _READY_S + count * _READY_EACH_S
    while (ready := _ready(state)) < count:
        processes.require_running(state, "kwok")
        if time.monotonic() > deadline:
            message = f"only {ready} of {count} simulated nodes are Ready; look into {state.folder / 'logs/kwok.log'}"
            raise TestbedError(message)
        time.sleep(_POLL_S)


def _ready(state: State) -> int:
    with closing(control_plane.admin(state)) as api:
        nodes = api.get("/api/v1/nodes?labelSelector=type%3Dkwok&resourceVersion=0")["items"]
    return sum(is_ready(n) for n in nodes)


def is_ready(node_object: dict[str, Any]) -> bool:
    """Whether a Node is Ready and its not-ready taint is gone, so that pods can be scheduled."""
    conditions = node_object.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = node_object["spec"].get("taints", [])
    return ready and not any(t["key"].startswith("node.kubernetes.io/not-ready") for t in taints)
