"""What the token of one node's agent can write: its own GPUNode, and its own taint and condition. Tried for real."""

import http.client
import json
import ssl
from typing import Any

import pytest

from testbed import control_plane
from testbed.demo.release import NAMESPACE
from testbed.state import State

pytestmark = pytest.mark.cluster

_STATUS = "/apis/outrider.dev/v1alpha1/gpunodes/{}/status"
_MERGE = "application/merge-patch+json"


@pytest.fixture
def token(installed: State) -> str:
    """Return a token bound to the agent's pod on gpu-0, as the kubelet gets it for the pod."""
    api = control_plane.admin(installed)
    selector = "labelSelector=app.kubernetes.io/component%3Dnode-agent&fieldSelector=spec.nodeName%3Dgpu-0"
    pod = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")["items"][0]["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/outrider-node-agent/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound, "audiences": []},
    }
    status, answer = api.call("POST", path, body)
    api.close()
    assert status == 201, answer
    return str(answer["status"]["token"])


def call(state: State, token: str, path: str, patch: Any, kind: str = _MERGE, method: str = "PATCH") -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(control_plane.certificates(state) / "ca.crt"))
    connection = http.client.HTTPSConnection(state.plan.host, state.plan.port("kube-apiserver"), context=context)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    connection.request(method, f"{path}?dryRun=All", json.dumps(patch), headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_it_writes_its_own_gpunode_and_no_other(installed: State, token: str) -> None:
    patch = {"status": {"message": "mine"}}
    assert call(installed, token, _STATUS.format("gpu-0"), patch)[0] == 200
    code, text = call(installed, token, _STATUS.format("gpu-1"), patch)
    assert code == 403
    assert "may write only the GPUNode of the node that its token was issued on (gpu-0)" in text


def test_it_taints_its_own_node_with_our_taint_only(installed: State, token: str) -> None:
    ours = {"spec": {"taints": [{"key": "outrider.dev/unhealthy", "value": "x", "effect": "NoSchedule"}]}}
    assert call(installed, token, "/api/v1/nodes/gpu-0", ours)[0] == 200
    code, text = call(installed, token, "/api/v1/nodes/gpu-1", ours)
    assert (code, "issued on (gpu-0)" in text) == (403, True)
    other = {"spec": {"taints": [{"key": "team.example/mine", "value": "x", "effect": "NoSchedule"}]}}
    code, text = call(installed, token, "/api/v1/nodes/gpu-0", other)
    assert (code, "no taint but outrider.dev/unhealthy" in text) == (403, True)


@pytest.mark.parametrize(
    ("path", "patch", "words"),
    [
        ("", {"spec": {"unschedulable": True}}, "may not cordon"),
        ("", {"metadata": {"labels": {"nvidia.com/gpu.present": "false"}}}, "labels or annotations"),
        ("/status", {"status": {"capacity": {"nvidia.com/gpu": "0"}}}, "capacity"),
        ("/status", {"status": {"conditions": []}}, "no condition but GPUHealthy"),
    ],
)
def test_it_changes_nothing_else_of_its_node(
    installed: State, token: str, path: str, patch: dict[str, Any], words: str
) -> None:
    code, text = call(installed, token, f"/api/v1/nodes/gpu-0{path}", patch)
    assert code == 403
    assert words in text


def test_it_sets_its_own_condition(installed: State, token: str) -> None:
    condition = {"type": "GPUHealthy", "status": "True", "reason": "Healthy", "message": "tried"}
    kind = "application/strategic-merge-patch+json"
    code, text = call(installed, token, "/api/v1/nodes/gpu-0/status", {"status": {"conditions": [condition]}}, kind)
    assert code == 200, text


def rule(node: str = "gpu-0", **selector: str) -> dict[str, Any]:
    chosen = {"driver": "gpu.nvidia.com", "pool": node, "device": "gpu-3"} | selector
    taint = {"key": "outrider.dev/unhealthy", "value": "x", "effect": "NoSchedule"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": f"outrider-gpu-3.{node}"},
        "spec": {"deviceSelector": chosen, "taint": taint},
    }


def evicting() -> dict[str, Any]:
    body = rule()
    body["spec"]["taint"]["effect"] = "NoExecute"
    return body


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (rule(), 201, ""),
        (rule("gpu-1"), 403, "rules named outrider-DEVICE.NODE"),
        (rule("x.gpu-0"), 403, "rules named outrider-DEVICE.NODE"),
        (rule(pool="gpu-1"), 403, "one GPU of its own node"),
        (rule(driver="net.example"), 403, "one GPU of its own node"),
        (evicting(), 403, "one GPU of its own node"),
    ],
    ids=["its own", "another node's", "a node that ends alike", "another pool", "another driver", "evicts pods"],
)
def test_it_taints_gpus_of_its_own_node_only(
    installed: State, token: str, body: dict[str, Any], code: int, words: str
) -> None:
    path = "/apis/resource.k8s.io/v1/devicetaintrules"
    answer, text = call(installed, token, path, body, "application/json", "POST")
    assert (answer, words in text) == (code, True), text
