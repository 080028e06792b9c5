"""A control plane comes up, serves what Outrider needs, and leaves nothing behind, even after kill -9."""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from testbed import cluster, processes, state
from testbed.control_plane import admin, is_ready
from testbed.errors import TestbedError
from testbed.state import State
from tests.testbed import leftovers

pytestmark = [pytest.mark.control_plane, pytest.mark.slow]


@pytest.fixture
def names(fresh_name: str) -> Iterator[tuple[str, str]]:
    """Two names of testbeds of this run, removed afterwards."""
    pair = f"{fresh_name}-a", f"{fresh_name}-b"
    yield pair
    for name in pair:
        cluster.down(name)


def test_two_testbeds_run_side_by_side_and_down_leaves_nothing(names: tuple[str, str]) -> None:
    one, other = map(cluster.up, names)
    assert one.plan.api_url != other.plan.api_url
    with closing(admin(one)) as api:
        api.ensure("/api/v1/namespaces", {"metadata": {"name": "only-here"}})
    with closing(admin(other)) as api:
        assert api.call("GET", "/api/v1/namespaces/only-here")[0] == 404
    cluster.down(one.name)
    assert leftovers.of(one.name, one.plan) == []
    assert is_ready(other)
    cluster.down(other.name)
    assert leftovers.of(other.name, other.plan) == []


def test_up_after_kill_minus_9_of_everything_starts_anew(names: tuple[str, str]) -> None:
    first = cluster.up(names[0], kwok_nodes=3)
    for pid in list(processes.of_testbed(names[0])):
        os.kill(pid, signal.SIGKILL)
    again = cluster.up(names[0], kwok_nodes=2)
    assert sorted(n["metadata"]["name"] for n in _nodes(again)) == ["kwok-0000", "kwok-0001"]
    cluster.down(names[0])
    assert leftovers.of(names[0], first.plan) == leftovers.of(names[0], again.plan) == []


def test_up_killed_in_the_middle_is_cleared_by_down(names: tuple[str, str]) -> None:
    command = [sys.executable, "-m", "testbed", "--name", names[0], "up", "--nodes", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as running:
        assert running.stderr
        for line in running.stderr:
            if b"control plane" in line:
                break
        running.kill()
    interrupted = state.require(names[0])
    assert leftovers.of(names[0], interrupted.plan)
    cluster.down(names[0])
    assert leftovers.of(names[0], interrupted.plan) == []


def test_up_again_keeps_what_runs(control_plane: State) -> None:
    before = {name: processes.find(control_plane, name) for name in processes.names(control_plane)}
    assert cluster.up(control_plane.name) == state.require(control_plane.name)
    assert {name: processes.find(control_plane, name) for name in processes.names(control_plane)} == before


def test_simulated_nodes_carry_gpus_and_are_schedulable(names: tuple[str, str]) -> None:
    up = cluster.up(names[0], kwok_nodes=20, profile="gb200")
    nodes = _nodes(up)
    assert len(nodes) == 20
    assert {n["status"]["allocatable"]["nvidia.com/gpu"] for n in nodes} == {"4"}
    assert {t["key"] for n in nodes for t in n["spec"]["taints"]} == {"kwok.x-k8s.io/node"}
    assert len({n["metadata"]["labels"]["network.topology.nvidia.com/leaf"] for n in nodes}) == 2
    assert all("nvidia.com/gpu.clique" in n["metadata"]["labels"] for n in nodes)


def test_tokens_of_pods_name_their_node(control_plane: State, namespace: str) -> None:
    """KEP-4193: the agent's rights are bound to its node by this claim."""
    pod = {
        "metadata": {"name": "agent"},
        "spec": {"nodeName": "claimed", "containers": [{"name": "c", "image": "i"}]},
    }
    with closing(admin(control_plane)) as api:
        api.ensure("/api/v1/nodes", {"metadata": {"name": "claimed"}})
        api.ensure(f"/api/v1/namespaces/{namespace}/pods", pod)
        uid = api.get(f"/api/v1/namespaces/{namespace}/pods/agent")["metadata"]["uid"]
        request = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": uid}}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
        status, answer = api.call("POST", path, request)
        api.call("DELETE", "/api/v1/nodes/claimed")
    assert status == 201, answer
    payload = answer["status"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["kubernetes.io"]["node"]["name"] == "claimed"


def test_admission_policies_are_served(control_plane: State) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    with closing(admin(control_plane)) as api:
        assert "items" in api.get(path)


@pytest.mark.parametrize("name", ["", "Upper", "1st", "a" * 21, "a/b", "a b"])
def test_a_name_that_could_not_be_a_folder_or_host_is_refused(name: str) -> None:
    with pytest.raises(TestbedError, match="--name"):
        cluster.down(name)


def test_an_unknown_profile_is_refused_by_name(fresh_name: str) -> None:
    with pytest.raises(TestbedError, match="h100, gb200"):
        cluster.up(fresh_name, profile="tpu")


def _nodes(up: State) -> list[dict[str, Any]]:
    with closing(admin(up)) as api:
        nodes: list[dict[str, Any]] = api.get("/api/v1/nodes")["items"]
    return nodes
