from typing import Any

import msgspec
import pytest

from outrider.api.core import NamedReference, Pod
from outrider.api.names import GANG_GATE, WHY_ANNOTATION
from scheduler_plugin.planner.deliver import release_patch
from tests.scheduler_plugin.builders import make_pod, pinned_to

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def only(node: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


def affinity_after(pod: Pod, *nodes: str) -> dict[str, Any]:
    operations = release_patch(pod, nodes, "why")
    found: dict[str, Any] = next(
        one["value"] for one in operations if one["path"] == "/spec/affinity" and one["op"] == "add"
    )
    return found


def test_a_pod_without_affinity_may_use_its_node_and_the_spares_and_prefers_its_node() -> None:
    node_affinity = affinity_after(make_pod("p", job="train"), "n0", "n3")["nodeAffinity"]
    assert node_affinity[REQUIRED] == {"nodeSelectorTerms": [only("n0"), only("n3")]}
    assert node_affinity[PREFERRED] == [{"weight": 100, "preference": only("n0")}]


def test_the_users_own_terms_are_narrowed_each_and_the_rest_of_the_affinity_stays() -> None:
    own = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    preferred = [{"weight": 5, "preference": own}]
    affinity = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [own, only("n0")]}, PREFERRED: preferred},
        "podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]},
    }
    after = affinity_after(make_pod("p", job="train", affinity=affinity), "n0", "n3")
    terms = after["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [own | only("n0"), {"matchFields": only("n0")["matchFields"] * 2}]
    assert after["nodeAffinity"][PREFERRED][:1] == preferred
    assert after["podAntiAffinity"] == affinity["podAntiAffinity"]


def test_the_patch_names_the_pod_and_its_gate_so_that_it_can_be_sent_again() -> None:
    pod = make_pod("p", job="train", affinity=pinned_to("n0"))
    gates = [NamedReference(name="example.com/quota"), NamedReference(name=GANG_GATE)]
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=gates))
    operations = release_patch(pod, ["n0"], "why")
    assert operations[:2] == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-p"},
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": GANG_GATE},
    ]
    assert {"op": "test", "path": "/spec/affinity", "value": pod.spec.affinity} in operations
    assert operations[-1] == {"op": "remove", "path": "/spec/schedulingGates/1"}


@pytest.mark.parametrize("annotations", [{}, {"a": "b"}])
def test_the_reason_is_added_beside_other_annotations(annotations: dict[str, str]) -> None:
    pod = make_pod("p", job="train")
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
    notes = [one for one in release_patch(pod, ["n0"], "because") if one["path"].startswith("/metadata/annotations")]
    whole = {"op": "add", "path": "/metadata/annotations", "value": {WHY_ANNOTATION: "because"}}
    single = {"op": "add", "path": "/metadata/annotations/outrider.dev~1why", "value": "because"}
    assert notes == [single if annotations else whole]
