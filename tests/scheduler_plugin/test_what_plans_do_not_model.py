"""Pods that ask for what only kube-scheduler judges: a spare will do where it refuses the planned node."""

from typing import Any

import msgspec
import pytest

from outrider.api import reasons
from outrider.api.core import NamedReference, Pod
from outrider.api.gpunode import Verdict
from scheduler_plugin.cluster.guests import guest_of
from scheduler_plugin.extender.decide import decide
from scheduler_plugin.planner.advance import advance
from tests.scheduler_plugin.builders import (
    NOW,
    RULES,
    gang_pods,
    make_gang,
    make_gpunode,
    make_job,
    make_node,
    make_placement,
    make_pod,
    make_snapshot,
    make_world,
)

CLAIM = [NamedReference(name="gpus")]


def with_spec(pod: Pod, **changes: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **changes))


def allowed(pod: Pod, names: list[str]) -> list[str]:
    """Return what filter allows a pod that is planned on n0, with n1 as its spare."""
    nodes = [make_node(f"n{index}") for index in range(3)]
    snapshot = make_snapshot(*nodes, make_placement("train", {0: "n0"}, spares=["n1"]), pod)
    return decide(pod, names, snapshot, NOW).allowed


def test_a_spare_stands_in_where_the_scheduler_refuses_what_the_plan_knew_nothing_about() -> None:
    usual = make_pod("train-0", job="train", rank=0, gated=False)
    claiming = with_spec(usual, resource_claims=CLAIM)
    assert allowed(claiming, ["n0", "n1", "n2"]) == ["n0"]
    assert allowed(claiming, ["n1", "n2"]) == ["n1"]
    assert allowed(claiming, ["n2"]) == []
    assert allowed(usual, ["n1", "n2"]) == []


def test_the_spare_must_be_fit_for_it() -> None:
    pod = with_spec(make_pod("train-0", job="train", rank=0, gated=False), resource_claims=CLAIM)
    full = make_pod("full", node="n1", phase="Running")
    snapshot = make_snapshot(
        make_node("n0"), make_node("n1"), make_placement("train", {0: "n0"}, spares=["n1"]), pod, full
    )
    assert decide(pod, ["n1"], snapshot, NOW).failed == {}
    assert decide(pod, ["n1"], snapshot, NOW).unresolvable == {"n1": reasons.NODE_NOT_PLANNED}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"resourceClaims": [{"name": "gpus"}]}, "resource claims (DRA)"),
        ({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}, "limits of volumes per node"),
        ({"volumes": [{"name": "d", "ephemeral": {}}]}, "limits of volumes per node"),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"team": "a"}}}
                        ]
                    }
                }
            },
            "pod affinity across namespaces chosen by label",
        ),
    ],
)
def test_what_is_not_modelled_is_named(spec: dict[str, Any], words: str) -> None:
    assert guest_of(msgspec.convert({"spec": spec}, Pod)).unmodelled == (words,)


def test_a_pod_that_asks_for_nothing_odd_is_modelled_whole() -> None:
    assert guest_of(make_pod("plain")).unmodelled == ()


def test_people_read_in_the_plan_what_it_did_not_look_at() -> None:
    pods = [with_spec(pod, resource_claims=CLAIM) for pod in gang_pods("train", 2)]
    world = make_world(*(make_node(f"n{index}") for index in range(3)), *pods)
    step = advance(make_gang(make_job("train", 2), pods), world.publish(), RULES, NOW)
    assert step.status is not None
    assert "not planned for: resource claims (DRA) (a spare stands in where that is in the way)" in step.status.message


def planned(gang: list[Pod], *objects: object) -> list[str]:
    """Return the nodes of the gang, none where it waits."""
    world = make_world(*objects, *gang)
    step = advance(make_gang(make_job("train", len(gang)), gang), world.publish(), RULES, NOW)
    return [nodes[0] for _, nodes in step.release]


def test_a_gang_that_claims_devices_goes_to_sound_hardware_only() -> None:
    pods = [with_spec(pod, resource_claims=CLAIM) for pod in gang_pods("train", 2, gpus=0)]
    nodes = [make_node("n0"), make_node("n1"), make_gpunode("n0", verdict=Verdict.REPLACE)]
    assert set(planned(pods, *nodes)) == {"n1"}


def test_room_that_preemption_makes_for_a_pod_is_nobody_elses() -> None:
    nominated = make_pod("waits", gpus=8)
    status = msgspec.structs.replace(nominated.status, nominated_node_name="n0")
    nodes = [make_node("n0"), make_node("n1")]
    assert planned(gang_pods("train", 1), *nodes) == ["n0"]
    assert planned(gang_pods("train", 1), *nodes, msgspec.structs.replace(nominated, status=status)) == ["n1"]
