"""What the pre-delete hook takes off a cluster, against the real API server."""

import json
from typing import Any

import msgspec
import pytest

from outrider.api import names
from outrider.api.core import Node, Pod
from outrider.cli import uninstall
from outrider.kube.client import Client, PatchType
from outrider.kube.kinds import EVENTS, NODES, PODS
from testbed.demo import release
from testbed.state import State


def pod(*gates: str, **annotations: str) -> Pod:
    body = {
        "metadata": {"name": "p", "namespace": "d", "resourceVersion": "7", "annotations": annotations},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates]},
    }
    return msgspec.convert(body, Pod)


def test_a_pod_without_anything_of_ours_is_left_alone() -> None:
    assert uninstall.pod_patch(pod("team.example/quota", note="mine")) is None


def test_only_our_gate_goes_and_the_patch_holds_only_for_the_pod_as_it_was_read() -> None:
    patch = uninstall.pod_patch(pod(names.GANG_GATE, "team.example/quota"))
    assert patch == {
        "metadata": {"resourceVersion": "7", "annotations": {}},
        "spec": {"schedulingGates": [{"name": "team.example/quota"}]},
    }


def test_only_our_taint_goes_and_only_if_it_is_still_where_it_was_read() -> None:
    node = msgspec.convert(
        {"spec": {"taints": [{"key": "a"}, {"key": names.UNHEALTHY_TAINT, "value": "xid-79"}, {"key": "b"}]}}, Node
    )
    assert uninstall.taint_patch(node) == [
        {"op": "test", "path": "/spec/taints/1/key", "value": names.UNHEALTHY_TAINT},
        {"op": "remove", "path": "/spec/taints/1"},
    ]


@pytest.mark.control_plane
async def test_the_hook_leaves_no_gate_taint_condition_or_annotation_and_tells_stranded_pods(
    control_plane: State, client: Client, namespace: str
) -> None:
    sick = f"sick-{namespace}"
    apply(control_plane, gated_pod(namespace))
    apply(control_plane, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": sick}, "spec": {"taints": TAINTS}})
    condition = {"type": names.GPU_CONDITION, "status": "False", "reason": "Unhealthy", "message": "xid/79"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    await client.patch(NODES, sick, {"status": {"conditions": [ready, condition]}}, PatchType.STRATEGIC, "", "status")

    await uninstall.clean(client, namespace)
    await uninstall.clean(client, namespace)  # helm may run a hook again

    waiting = await client.get(PODS, "waits", namespace)
    assert [gate.name for gate in waiting.spec.scheduling_gates] == ["team.example/quota"]
    assert waiting.metadata.annotations == {"note": "mine"}
    node = await client.get(NODES, sick)
    assert names.UNHEALTHY_TAINT not in [taint.key for taint in node.spec.taints]
    assert "team.example/reserved" in [taint.key for taint in node.spec.taints]
    assert "Ready" in [c.type for c in node.status.conditions]
    assert names.GPU_CONDITION not in [c.type for c in node.status.conditions]
    await client.delete(NODES, sick)
    events = [
        e
        for e in (await client.list(EVENTS)).items
        if (e.reason, e.metadata.namespace) == ("OutriderUninstalled", namespace)
    ]
    assert len(events) == 1
    assert f"kubectl delete pod -n {namespace} waits" in events[0].message


TAINTS = [
    {"key": "team.example/reserved", "value": "x", "effect": "NoSchedule"},
    {"key": names.UNHEALTHY_TAINT, "value": "xid-79", "effect": "NoSchedule"},
]


def gated_pod(namespace: str) -> dict[str, Any]:
    annotations = {names.CHECKPOINT_REQUEST_ANNOTATION: "{}", names.WHY_ANNOTATION: "waits", "note": "mine"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waits", "namespace": namespace, "annotations": annotations},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "schedulingGates": [{"name": names.GANG_GATE}, {"name": "team.example/quota"}],
            "containers": [{"name": "c", "image": "outrider.dev/tools:1"}],
        },
    }


def apply(state: State, body: dict[str, Any]) -> None:
    release.kubectl(state, "create", "-f", "-", stdin=json.dumps(body))
