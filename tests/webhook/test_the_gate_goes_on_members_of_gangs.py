"""The gang gate on pods of every kind, as real controllers made them, and on none that is no gang's."""

import copy
from typing import Any

import pytest

from outrider.api import names
from tests.webhook.pods import apply, container, owner, pod
from tests.workloads.recorded import FILES, name_of, read
from webhook.mutate import Context, mutate

CONTEXT = Context(namespace="training", request_uid="0d9c5a3e-7b1f-4c55-9e3a-1f2d3c4b5a69", image="example.com/inpod:1")
INDEPENDENT = {"job/plain"}


def submitted(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as its controller sent it, before anything of ours was on it."""
    body = copy.deepcopy(recorded)
    body.pop("status", None)
    body["spec"].pop("nodeName", None)
    body["spec"].pop("schedulingGates", None)
    body["spec"]["schedulerName"] = "default-scheduler"
    for name in ("uid", "resourceVersion", "namespace"):
        body["metadata"].pop(name, None)
    return body


def admitted(before: dict[str, Any]) -> dict[str, Any]:
    return apply(before, mutate(before, CONTEXT).patch)


def gates(after: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in after["spec"].get("schedulingGates", [])]


def has_gpus(body: dict[str, Any]) -> bool:
    return any("nvidia.com/gpu" in one.get("resources", {}).get("limits", {}) for one in body["spec"]["containers"])


@pytest.mark.parametrize("name", [name_of(path) for path in FILES])
def test_gpu_pods_of_a_gang_are_gated_and_carry_one_uid_for_each_gang(name: str) -> None:
    case = read(name)
    uids: dict[str, set[str]] = {}
    for before in map(submitted, case.pods):
        after = admitted(before)
        if not has_gpus(before):
            assert after == before
            continue
        assert gates(after) == ([] if name in INDEPENDENT else [names.GANG_GATE])
        labels = after["metadata"]["labels"]
        group = labels.get("leaderworkerset.sigs.k8s.io/group-index", "")
        uids.setdefault(group, set()).add(labels[names.JOB_UID_LABEL])
    assert all(len(group) == 1 for group in uids.values())
    assert len(set.union(*uids.values())) == len(uids)


@pytest.mark.parametrize(
    ("metadata", "gated"),
    [
        ({"annotations": {"outrider.dev/gang": "a", "outrider.dev/gang-size": "2"}}, True),
        ({"annotations": {"outrider.dev/gang": "a"}}, False),
        ({"annotations": {"outrider.dev/gang-size": "2"}}, False),
        ({"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}, False),
        (
            {
                "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
            },
            True,
        ),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, True),
        ({"annotations": {"pod-group-name": "g"}}, True),
        ({"ownerReferences": [owner("Job", "batch.volcano.sh/v1alpha1")]}, True),
        ({"ownerReferences": [owner("ReplicaSet", "apps/v1")]}, False),
        ({"ownerReferences": [owner("ReplicaSet", "apps/v1")], "annotations": {"pod-group-name": "g"}}, False),
        ({}, False),
    ],
)
def test_pods_by_themselves_are_gated_where_their_gang_has_a_size(metadata: dict[str, Any], gated: bool) -> None:
    bare: dict[str, Any] = {"labels": {}, "annotations": {}, "ownerReferences": []}
    after = admitted(pod(metadata=bare | metadata))
    assert gates(after) == ([names.GANG_GATE] if gated else [])


def test_a_pod_of_a_podgroup_is_gated() -> None:
    bare: dict[str, Any] = {"labels": {}, "annotations": {}, "ownerReferences": []}
    after = admitted(pod(container(), metadata=bare, schedulingGroup={"podGroupName": "g"}))
    assert gates(after) == [names.GANG_GATE]


def test_a_gang_by_name_has_one_uid_though_the_namespace_stands_in_the_review_only() -> None:
    annotations = {"outrider.dev/gang": "a", "outrider.dev/gang-size": "2"}
    named = [
        admitted(pod(metadata={"labels": {}, "annotations": annotations, "ownerReferences": []} | namespace))
        for namespace in ({}, {"namespace": "training"})
    ]
    assert len({after["metadata"]["labels"][names.JOB_UID_LABEL] for after in named}) == 1


def test_kueues_gate_stays_beside_ours() -> None:
    before = pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    assert gates(admitted(before)) == ["kueue.x-k8s.io/admission", names.GANG_GATE]


def test_whoever_creates_a_gang_without_a_size_is_told() -> None:
    bare: dict[str, Any] = {"labels": {}, "ownerReferences": [], "annotations": {"outrider.dev/gang": "a"}}
    (warning,) = mutate(pod(metadata=bare), CONTEXT).warnings
    assert warning == "outrider.dev/gang-size is missing on its pods: it is placed as a single pod"
    assert mutate(pod(), CONTEXT).warnings == []
